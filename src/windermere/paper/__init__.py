"""The reproduction of the paper, which uses the library as any user would."""
