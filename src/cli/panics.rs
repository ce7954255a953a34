//! A panic is a bug of the program: it ends as a message that says so and what a report of it holds, with exit code 1.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

/// Does `work`, which `arguments` (the program's name first) ask for. If it panics, on whatever thread, says the first
/// panic on `stderr` and returns exit code 1.
///
/// The message is written when all threads have unwound, so that no progress bar draws over it. While `work` runs, the
/// panic hook of the process is replaced.
pub(super) fn reported(arguments: &[OsString], stderr: &mut impl Write, work: impl FnOnce() -> ExitCode) -> ExitCode {
    let first = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&first);
    let hook_before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // `capture` does nothing unless RUST_BACKTRACE or RUST_LIB_BACKTRACE asks for it.
        let backtrace = Backtrace::capture();
        noted.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| Panic::new(info, &backtrace));
    }));
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(hook_before);
    result.unwrap_or_else(|_| {
        if let Some(panic) = first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // There is nowhere left to complain about a closed standard error.
            let _ = stderr.write_all(panic.message(arguments).as_bytes());
        }
        ExitCode::FAILURE
    })
}

/// Panics if `RDUSIM_TEST_PANIC` is set in a debug build, so that tests can see how a bug ends.
pub(super) fn if_a_test_asks() {
    #[cfg(debug_assertions)]
    if let Some(reason) = std::env::var_os("RDUSIM_TEST_PANIC") {
        panic!("{}", reason.to_string_lossy());
    }
}

/// What is known of a panic.
#[derive(Debug)]
struct Panic {
    text: String,
    /// File, line and column.
    location: String,
    /// If one was asked for.
    backtrace: Option<String>,
}

impl Panic {
    fn new(info: &PanicHookInfo<'_>, backtrace: &Backtrace) -> Self {
        let is_captured = backtrace.status() == BacktraceStatus::Captured;
        Self {
            text: info.payload_as_str().unwrap_or("(no message)").to_owned(),
            location: info.location().map_or_else(|| "unknown".to_owned(), ToString::to_string),
            backtrace: is_captured.then(|| backtrace.to_string()),
        }
    }

    fn message(&self, arguments: &[OsString]) -> String {
        let command: Vec<String> = arguments.iter().map(|argument| quoted(&argument.to_string_lossy())).collect();
        let (version, command, Self { text, location, .. }) = (env!("CARGO_PKG_VERSION"), command.join(" "), self);
        let message = format!(
            "error: this is a bug in rdusim: it panicked\n  \
             Please report these lines, with the files that the command reads:\n  \
             version:  {version}\n  \
             command:  {command}\n  \
             panic:    {text}\n  \
             location: {location}\n"
        );
        match &self.backtrace {
            Some(backtrace) => format!("{message}  backtrace:\n{}\n", backtrace.trim_end()),
            None => message + "  With RUST_BACKTRACE=1 in the environment a backtrace follows; please report it too.\n",
        }
    }
}

/// An argument as a shell takes it.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_to_report() {
        let arguments = ["rdusim", "check", "--arch", "my chip.toml"].map(OsString::from);
        let panic = Panic { text: "boom".into(), location: "src/a.rs:1:2".into(), backtrace: None };
        let message = panic.message(&arguments);
        assert!(message.starts_with("error: this is a bug in rdusim"), "{message}");
        for word in [env!("CARGO_PKG_VERSION"), "rdusim check --arch 'my chip.toml'", "boom", "src/a.rs:1:2"] {
            assert!(message.contains(word), "{message}");
        }
        assert!(message.contains("RUST_BACKTRACE=1"), "{message}");
        let message = Panic { backtrace: Some("0: main\n".into()), ..panic }.message(&arguments);
        assert!(message.ends_with("backtrace:\n0: main\n") && !message.contains("RUST_BACKTRACE"), "{message}");
    }

    #[test]
    fn a_panic_of_any_thread_is_exit_code_1() {
        let arguments = [OsString::from("rdusim")];
        let mut message = Vec::new();
        assert_eq!(reported(&arguments, &mut message, || ExitCode::SUCCESS), ExitCode::SUCCESS);
        assert!(message.is_empty());
        assert_eq!(reported(&arguments, &mut message, || panic!("on this thread")), ExitCode::FAILURE);
        let on_a_worker = || rayon::join(|| ExitCode::SUCCESS, || panic!("on a worker")).0;
        assert_eq!(reported(&arguments, &mut message, on_a_worker), ExitCode::FAILURE);
        let message = String::from_utf8(message).expect("UTF-8");
        assert!(message.contains("on this thread") && message.contains("on a worker"), "{message}");
        assert_eq!(message.matches("this is a bug").count(), 2, "{message}");
    }
}
