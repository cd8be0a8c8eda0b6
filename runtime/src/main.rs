//! The `drowse` program. All it can do, the library can.

fn main() -> std::process::ExitCode {
    drowse::main_impl()
}
