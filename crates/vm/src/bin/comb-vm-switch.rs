//! A virtual subnet.

fn main() -> std::process::ExitCode {
    comb_vm::devices::switch::command::run(std::env::args().skip(1))
}
