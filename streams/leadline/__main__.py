"""``python -m leadline``: the same as ``leadline``."""

from leadline.cli.main import main

if __name__ == "__main__":
    main()
