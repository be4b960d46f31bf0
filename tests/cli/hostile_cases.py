"""Wrong, missing, empty and huge input for every command, and what is said of it.

Tables hold a case a line: what is given after the words above, then what is said.
"""


def cases(start, table):
    pairs = [line.split("| ") for line in table.strip().splitlines()]
    return [(f"{start} {words.strip()}", said.strip()) for words, said in pairs]


INSPECT = cases(
    "inspect",
    """
    | need at least one path
    nothing.csv | no such file
    '' | an empty name: no such file
    '*.none' | expected a pattern that matches files
    letter | cannot tell the format
    hollow | found a folder with none of these
    empty.csv | empty.csv: expected a first line with column names
    empty.npz | empty.npz: expected a readable NPZ file
    empty.hdf5 | empty.hdf5: expected a readable HDF5 file
    junk.csv | junk.csv: expected UTF-8 text
    junk.npz | junk.npz: expected a readable NPZ file
    junk.hdf5 | junk.hdf5: expected a readable HDF5 file
    folder.csv | folder.csv: expected a file
    folder.npz | folder.npz: expected a file
    hole.csv | got NUL bytes in more than that
    tail.csv | tail.csv: line 3: expected a line of at most
    hole.npz | hole.npz: expected a readable NPZ file
    hole.hdf5 | hole.hdf5: expected a readable HDF5 file
    rows.npz rows.npz | is named twice
    rows.npz --format nope | invalid choice 'nope'
    rows.npz --format csv | expected UTF-8 text
    rows.npz --obs '' | expected obs
    rows.npz --obs , | expected one key for obs
    rows.npz --reward nope | nope
    rows.npz --labelled '' | expected a column, got the end
    rows.npz --labelled 'reward >' | expected a value
    rows.npz --labelled nothing.csv | nothing.csv: no such file
    rows.npz --label 'reward > 0' | Perhaps you meant: --labelled EXPR|FILE
    rows.npz --nope 1 | Unrecognized options: --nope
    """,
)

COLLECT = cases(
    "collect --quality random --no-cache",
    """
    | Missing from puorl collect: --env BODY
    --env nope --seed 0 --out x.npz | body: expected one of
    --env '' --seed 0 --out x.npz | body: expected one of
    --env hopper --seed -1 --out x.npz | seed: expected a whole number, 0 or above, got -1
    --env hopper --seed 1e3 --out x.npz | --seed: expected a whole number, got '1e3'
    --env hopper --seed nan --out x.npz | --seed: expected a whole number, got 'nan'
    --env hopper --seed 0 --out x.npz --rows 0 | rows: expected at least one
    --env hopper --seed 0 --out x.npz --rows -1 | --rows: expected a whole number
    --env hopper --seed 0 --out x.npz --rows nan | --rows: expected a whole number
    --env hopper --seed 0 --out x.npz --rows '' | --rows: expected a whole number
    --env hopper --seed 0 --out x.npz --rows 1e18 | --rows: expected a whole number
    --env hopper --seed 0 --out x.npz --rows 1e15 | need 114.0 PB
    --env hopper --seed 0 --out x.npz --threads 0 | threads: expected 1 or more
    --env hopper --seed 0 --out x.npz --threads -1 | threads: expected 1 or more
    --env hopper --seed 0 --out x.npz --threads nan | --threads: expected a whole number, got 'nan'
    --env hopper --seed 0 --out x.npz --domain '' | domain: expected one of
    --env hopper --seed 0 --out x.npz --domain gravity=nan | expected a finite number
    --env hopper --seed 0 --out x.npz --domain gravity=-1 | expected a value of 0 or more
    --env hopper --seed 0 --out x.npz --quality nope | invalid choice 'nope'
    --env hopper --seed 0 --out x.npz --policy nothing | nothing: expected a policy
    --env hopper --seed 0 --out x.npz --policy hollow | hollow: expected a policy
    --env hopper --seed 0 --out x.npz --policy junk.safetensors | expected a policy in safetensors
    --env hopper --seed 0 --out x.npz --policy hole.safetensors | expected a policy in safetensors
    --env hopper --seed 0 --out rows.npz | rows.npz: already exists
    --env hopper --seed 0 --out hollow | hollow: already exists
    --env hopper --seed 0 --out '' | already exists
    --env hopper --seed 0 --out letter/x.npz | where a folder is needed
    --env hopper --seed 0 --out x.nope | cannot tell the format to write
    """,
)

SPLIT = cases(
    "split",
    """
    | Missing from puorl split: PATH
    rows.npz --others --out x --seed 0 | others: expected at least one other domain
    nothing.npz --others b.npz --out x --seed 0 | nothing.npz: no such file
    rows.npz --others junk.npz --out x --seed 0 | junk.npz: expected a readable NPZ file
    hollow --others b.npz --out x --seed 0 | hollow: expected a file
    rows.npz --others b.npz --out letter --seed 0 | letter: already exists
    rows.npz --others b.npz --out letter --seed 0 --force | expected a folder to replace
    rows.npz --others b.npz --out letter/x --seed 0 | where a folder is needed
    rows.npz --others b.npz --out x --seed -1 --rows 200 | seed: expected a whole number
    rows.npz --others b.npz --out x --seed nan | --seed: expected a whole number
    rows.npz --others b.npz --out x --seed 0 --rows 0 | labelled_fraction: 0.01 of 0 rows is no row
    rows.npz --others b.npz --out x --seed 0 --rows nan | --rows: expected a whole number
    rows.npz --others b.npz --out x --seed 0 --rows 1e15 | there are only 300; lower rows
    rows.npz --others b.npz --out x --seed 0 --rows 1e15 --unit episode | there are only 300
    rows.npz --others b.npz --out x --seed 0 --target-fraction 0 | expected 0 < labelled
    rows.npz --others b.npz --out x --seed 0 --target-fraction nan | expected 0 < labelled
    rows.npz --others b.npz --out x --seed 0 --target-fraction 1e300 | expected 0 < labelled
    rows.npz --others b.npz --out x --seed 0 --target-fraction x | -fraction: expected a number
    rows.npz --others b.npz --out x --seed 0 --labelled-fraction -1 | expected 0 < labelled
    rows.npz --others b.npz --out x --seed 0 --labelled-fraction nan | expected 0 < labelled
    rows.npz --others b.npz --out x --seed 0 --labelled-fraction 1e-300 | is no row
    rows.npz --others b.npz --out x --seed 0 --proportions | proportions: expected 1 positive
    rows.npz --others b.npz --out x --seed 0 --proportions 0 | proportions: expected 1 positive
    rows.npz --others b.npz --out x --seed 0 --proportions nan | proportions: expected 1 positive
    rows.npz --others b.npz --out x --seed 0 --proportions 1 2 | proportions: expected 1 positive
    rows.npz --others b.npz --out x --seed 0 --proportions x | --proportions
    rows.npz --others b.npz b.npz --out x --seed 0 --proportions 1e308 1e308 | proportions: expected
    """,
)

FILTER = cases(
    "filter",
    """
    | Missing from puorl filter: --out
    rows.npz --out x | expected rows known to be the target's, got none; name them with --labelled
    --labelled 'reward > 0' --out x | need at least one path
    nothing.npz --labelled 'reward > 0' --out x | nothing.npz: no such file
    junk.hdf5 --labelled 'reward > 0' --out x | junk.hdf5: expected a readable HDF5 file
    hole.csv --labelled 'reward > 0' --out x | got NUL bytes
    rows.npz --labelled '' --out x | expected a column, got the end
    rows.npz --labelled 'nope == 1' --out x | unknown name 'nope'
    rows.npz --labelled 'reward > 1e9' --out x | for none of 300 rows
    rows.npz --labelled 'reward > -1e9' --out x | for all 300 rows
    rows.npz --labelled nothing.csv --out x | nothing.csv: no such file
    rows.npz --labelled empty.csv --out x | got an empty file
    rows.npz --labelled empty.txt --out x | got an empty file
    rows.npz --labelled junk.csv --out x | junk.csv: expected a keep-list
    rows.npz --labelled junk.txt --out x | junk.txt: expected a keep-list
    rows.npz --labelled hole.csv --out x | hole.csv: line 1: expected a line of at most
    rows.npz --labelled hole.txt --out x | hole.txt: line 1: expected a line of at most
    rows.npz --labelled folder.csv --out x | folder.csv: expected a file
    rows.npz --labelled ./hollow --out x | hollow: expected a file
    rows.npz --labelled rows.npz --out x | would count twice
    rows.npz --labelled 'reward > 0' --out letter | letter: already exists
    rows.npz --labelled 'reward > 0' --out letter --force | expected a folder to replace
    rows.npz --labelled 'reward > 0' --out letter/x | where a folder is needed
    rows.npz --labelled 'reward > 0' --out x --unit nope | unit: expected transition
    rows.npz --labelled 'reward > 0' --out x --unit window:0 | unit: expected transition
    rows.npz --labelled 'reward > 0' --out x --unit window:nan | unit: expected transition
    rows.npz --labelled 'reward > 0' --out x --unit window:1e15 | unit: expected transition
    rows.npz --labelled 'reward > 0' --out x --unit column:nope | expected a column 'nope'
    rows.npz --labelled 'reward > 0' --out x --seed -1 | seed: expected a whole number
    rows.npz --labelled 'reward > 0' --out x --seed 1e3 | --seed: expected a whole number
    rows.npz --labelled 'reward > 0' --out x --seed 99999999999 | seed: expected a whole number
    rows.npz --labelled 'reward > 0' --out x --preset nope | invalid choice 'nope'
    rows.npz --labelled 'reward > 0' --out x --mode nope | invalid choice 'nope'
    rows.npz --labelled 'reward > 0' --out x --out-format csv | invalid choice 'csv'
    """,
)

TRAIN = cases(
    "train --steps 20 --learner td3_bc",
    """
    | Missing from puorl train: --out PATH
    --out x | need at least one path
    nothing.npz --out x | nothing.npz: no such file
    junk.npz --out x | junk.npz: expected a readable NPZ file
    rows.npz --out letter | letter: expected a folder, found a file
    rows.npz --out letter/x | where a folder is needed
    rows.npz --out hole.csv | hole.csv: expected a folder, found a file
    rows.npz --out torn | expected a JSON file, got: more than
    rows.npz --out x --seeds 0 | --seeds: expected 1 or more
    rows.npz --out x --seeds nan | --seeds: expected a whole number
    rows.npz --out x --seeds 2000000000 | --seeds: expected at most 10,000, got 2,000,000,000
    rows.npz --out x --seed -1 | seed: expected a whole number
    rows.npz --out x --steps nan | --steps: expected a whole number
    rows.npz --out x --steps 1e18 | --steps: expected a whole number
    rows.npz --out x --steps 9e15 | steps: expected 2,147,483,647 or less
    rows.npz --out x --eval-every nan | --eval-every: expected a whole number
    rows.npz --out x --env hopper --eval-episodes 1e12 | need 1.0 PB of free memory
    rows.npz --out x --env hopper/gravity=nan | expected a finite number
    rows.npz --out x --set | --set: expected name=value, got nothing
    rows.npz --out x --set = | got ''
    rows.npz --out x --set batch_size=0 | --set batch_size: expected 1 or more
    rows.npz --out x --set batch_size=-1 | --set batch_size: expected a whole number
    rows.npz --out x --set batch_size=nan | --set batch_size: expected a whole number
    rows.npz --out x --set batch_size=1e15 | batch_size: expected 2,147,483,647 or less
    rows.npz --out x --set batch_size=2e9 | most of it for a batch: need
    rows.npz --out x --set hidden=1e9 | most of it for a batch: need
    rows.npz --out x --set hidden=1e9,1e9 | most of it for networks: need
    rows.npz --out x --set hidden=1e15 | hidden: expected 2,147,483,647 or less
    rows.npz --out x --set hidden= | --set hidden: expected a whole number
    rows.npz --out x --set hidden=8,nan | --set hidden: expected a whole number
    rows.npz --out x --steps 10000 --set policy_delay=10000 | lower policy_delay
    rows.npz --out x --set gamma=nan | --set gamma: expected a number
    rows.npz --out x --set gamma=-1 | --set gamma: expected 0 or more
    rows.npz --out x --set tau=2 | --set tau: expected a fraction from 0 to 1
    rows.npz --out x --set tau=1e300 | --set tau: expected a number
    rows.npz --out x --set noise_clip=-1 | --set noise_clip: expected 0 or more
    rows.npz --out x --set actor_learning_rate=0 | expected more than 0
    rows.npz --out x --learner cql --set num_sampled=1e9 | most of it for a batch
    rows.npz --out x --learner td7 --set embedding_dim=2e9 | most of it for
    rows.npz --out x --learner cql --set init=nope | init: expected one of
    """,
)

EVALUATE = cases(
    "evaluate",
    """
    | evaluate: expected --env ENV, or --offline with --data and without --env; got neither
    run --offline | got --offline
    run --env hopper --data rows.npz | got --env and --data
    --env hopper | expected a folder of puorl train or a policy file
    nothing --env hopper | nothing: expected a policy file, found no such file
    hollow --env hopper | found no run.json
    torn --env hopper | expected a JSON file, got: more than
    rows.npz --env hopper | expected a policy in safetensors
    empty.safetensors --env hopper | expected a policy in safetensors
    junk.safetensors --env hopper | expected a policy in safetensors
    hole.safetensors --env hopper | expected a policy in safetensors
    rows.npz --env nope | body: expected one of
    rows.npz --env hopper/nope | domain: expected one of
    rows.npz --env hopper --episodes 0 | --episodes: expected 1 or more
    rows.npz --env hopper --episodes nan | --episodes: expected a whole number
    rows.npz --env hopper --seed -1 | seed: expected a whole number
    rows.npz --env hopper --seed 4294967296 | seed: expected a whole number
    rows.npz --env hopper --threads x | --threads: expected a whole number
    rows.npz --env hopper --out seen.txt | --out: expected a name that ends in .json
    rows.npz --env hopper --out torn/run.json --force | other than run.json and record.json
    rows.npz --env hopper --out letter/x.json | where a folder is needed
    """,
)

BENCH = cases(
    "bench",
    """
    | Expected one of {run
    nope | Unrecognized options: nope
    list extra | Unrecognized options: extra
    report | Missing from puorl bench report: RESULTS
    report nothing | nothing/runs.jsonl: expected rows of puorl bench run, found none
    report letter | letter: expected a folder of puorl bench run
    report hollow | found none
    report empty.jsonl | found none
    report junk.jsonl | found none
    report folder.jsonl | expected a readable file
    report hole.jsonl | hole.jsonl: line 1: expected a row of puorl bench run
    report hollow --format nope | invalid choice 'nope'
    report hollow --json --format html | --json: expected neither
    report hollow --out letter/x --format html | where a folder is needed
    run | Missing from puorl bench run: SUITE
    run nope --out x | suite: expected one of
    run smoke --out letter | letter: expected a folder of puorl bench run
    run smoke --out x --seeds 0 | seeds: expected 1 or more
    run smoke --out x --seeds nan | --seeds: expected a whole number
    run smoke --out x --seeds 2000000000 | expected a plan of at most 100,000 runs
    run smoke --out x --split-seeds 0 | split_seeds: expected 1 or more
    run smoke --out x --split-seeds 2000000000 | expected a plan of at most 100,000 runs
    run smoke --out x --steps 0 | steps: expected a multiple
    run smoke --out x --steps nan | --steps: expected a whole number
    run smoke --out x --steps 9e15 | steps: expected 2,147,483,647 or less
    run smoke --out x --workers 0 | --workers: expected 1 or more
    run smoke --out x --workers x | --workers: expected a whole number
    run smoke --out x --only nope | only: expected words
    """,
)

OTHERS = cases(
    "",
    """
    nope | unknown command 'nope'
    '' | unknown command ''
    demo extra | Unrecognized options: extra
    demo --seed -1 | --seed: expected 0 to 2,000,000
    demo --seed 99999999999 | --seed: expected 0 to 2,000,000
    demo --seed nan | --seed: expected a whole number
    demo --out letter | letter: expected nothing, or the folder of an earlier demo
    demo --out letter/x | where a folder is needed
    doctor extra | Unrecognized options: extra
    doctor --json=2 | Unrecognized options: 2
    completion | Missing from puorl completion
    completion nope | invalid choice 'nope'
    completion bash extra | Unrecognized options: extra
    """,
)

CASES = [*INSPECT, *COLLECT, *SPLIT, *FILTER, *TRAIN, *EVALUATE, *BENCH, *OTHERS]
