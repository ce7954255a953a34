//! Standard output.

use std::io::{self, BufWriter, Write};

use super::failure::Failure;

/// Prints a result. A reader that has gone away (`| head`) has what it wanted: no failure.
pub(super) fn print(bytes: &[u8]) -> Result<(), Failure> {
    write(BufWriter::new(io::stdout().lock()), bytes).map_err(Failure::Output)
}

fn write(mut out: impl Write, bytes: &[u8]) -> io::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_broken_pipe_is_forgiven() {
        assert!(write(Failing(io::ErrorKind::BrokenPipe), b"x").is_ok());
        assert!(write(Failing(io::ErrorKind::StorageFull), b"x").is_err());
        assert!(write(Vec::new(), b"x").is_ok());
    }
}
