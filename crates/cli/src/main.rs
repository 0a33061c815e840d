//! The program `feedwater`. Its commands are in this crate's library, where tests can call parts of them.

fn main() -> std::process::ExitCode {
    feedwater_cli::main()
}
