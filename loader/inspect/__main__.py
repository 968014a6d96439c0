"""`python -m loader.inspect`."""

from loader.inspect.command import main

if __name__ == "__main__":
    main()
