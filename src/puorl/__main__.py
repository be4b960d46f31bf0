"""`python -m puorl`, for where the command is not on the path."""

from puorl.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
