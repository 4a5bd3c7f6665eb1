"""The commands: what each is called, which flags it takes, and what its help says. None of this needs PyTorch, which
takes seconds to import: a command imports its work, the file of the same name in `cli/`, when it is called."""
