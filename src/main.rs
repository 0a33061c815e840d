//! The command line: uses the crate from outside, like any program.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
