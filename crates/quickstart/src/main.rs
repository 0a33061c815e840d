//! The program of a first `cargo run`: the command line without optional sources. It builds in less
//! than half the time.

fn main() -> std::process::ExitCode {
    feedwater_cli::main()
}
