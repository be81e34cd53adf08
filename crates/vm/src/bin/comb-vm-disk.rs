//! Serves a disk to a virtual machine.

fn main() -> std::process::ExitCode {
    comb_vm::devices::disk::command::run(std::env::args_os().skip(1))
}
