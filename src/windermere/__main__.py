"""`python -m windermere`, also with nothing but PYTHONPATH=src."""

from windermere.cli import main

if __name__ == "__main__":
    main()
