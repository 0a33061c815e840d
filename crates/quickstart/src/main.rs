//! The program that `cargo run` builds by default: the command line tool without optional sources.
//! It builds in less than half the time of the complete tool.

fn main() -> std::process::ExitCode {
    feedwater_cli::main()
}
