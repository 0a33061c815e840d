//! The program `feedwater`; the library of this crate has the commands, so that tests can call parts of them.

fn main() -> std::process::ExitCode {
    feedwater_cli::main()
}
