//! The program `feedwater`. Its commands are in the library of this crate, so that tests can call
//! parts of them.

fn main() -> std::process::ExitCode {
    feedwater_cli::main()
}
