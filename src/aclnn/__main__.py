"""``python -m aclnn``: the command line."""

from aclnn.cli import main

if __name__ == "__main__":
    main()
