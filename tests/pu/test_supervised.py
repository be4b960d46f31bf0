import numpy as np

from puorl.pu import classifier, fitting
from puorl.pu.features import FeatureConfig, build, fit_scaling
from puorl.pu.learners import SUPERVISED, true_sets


def test_true_sets_are_the_truth():
    is_target = np.array([True, True, False, True, False])
    p, n = true_sets(np.array([1]), np.array([4, 3, 2, 0]), is_target)
    assert sorted(p) == [0, 1, 3]
    assert sorted(n) == [2, 4]


def test_the_upper_bound_tells_domains_apart(clear_split):
    is_target = clear_split.reveal("benchmark") == 0
    x = build(clear_split.pool.rows, FeatureConfig())
    x = fit_scaling(x, FeatureConfig())(x)
    rows = fitting.stack(fitting.own_lanes(clear_split), [np.ones(len(x), bool)], seed=0)
    p, n = true_sets(*clear_split.part("train"), is_target)
    rows = rows._replace(train_p=p[None].astype(np.int32), train_u=n[None].astype(np.int32))
    network = classifier.NetworkConfig(hidden=(32, 32))
    for point in fitting.epochs(x, rows, SUPERVISED, network, keys=fitting.lane_keys(0, 1)):
        if point.epoch == 5:
            break
    logit = classifier.score_rows(point.lanes.params, x)[0]
    test = clear_split.part("test")[1]
    assert ((logit > 0) == is_target)[test].mean() > 0.98
