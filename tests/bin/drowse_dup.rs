//! The `drowse` program again, so that these tests own the binary they run.

fn main() -> std::process::ExitCode {
    drowse::main_impl()
}
