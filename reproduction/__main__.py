"""`python -m reproduction`."""

from reproduction.cli import main

if __name__ == "__main__":  # processes of the runner import this module too
    main()
