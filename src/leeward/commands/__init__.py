"""One module a subcommand, each with `main(arguments) -> exit code`. Imported when it is called."""
