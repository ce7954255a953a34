//! Words of a text file, without trusting the length of its lines.

use std::io::{BufRead, Read};

use super::error::ReadError;

/// The longest word or line.
const MOST_BYTES: usize = 4096;

/// Whole numbers apart by white space or commas.
pub(super) struct Numbers<R> {
    input: R,
    line: u64,
}

impl<R: BufRead> Numbers<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: 1 }
    }

    /// The line of the next word, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The next number; `what` names it in errors.
    pub(super) fn next(&mut self, what: &str) -> Result<u64, ReadError> {
        let line = self.line;
        self.word()?.map_or_else(
            || Err(ReadError::new(format!("line {line}: the file ends where {what} is expected"))),
            |word| {
                let text = String::from_utf8_lossy(&word);
                text.parse().map_err(|_| {
                    let found: String = text.chars().take(40).collect();
                    ReadError::new(format!("line {}: found {found:?}, expected {what}, a whole number", self.line))
                })
            },
        )
    }

    /// Whether nothing but space is left.
    pub(super) fn at_end(&mut self) -> Result<bool, ReadError> {
        Ok(self.word()?.is_none())
    }

    fn word(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        let is_space = |byte: u8| byte.is_ascii_whitespace() || byte == b',';
        let mut word = Vec::new();
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok((!word.is_empty()).then_some(word));
            }
            let mut used = 0;
            let mut done = false;
            for &byte in buffer {
                if is_space(byte) {
                    if !word.is_empty() {
                        done = true;
                        break;
                    }
                    self.line += u64::from(byte == b'\n');
                } else {
                    word.push(byte);
                }
                used += 1;
                if word.len() > MOST_BYTES {
                    return Err(ReadError::new(format!("line {}: this is no text of numbers", self.line)));
                }
            }
            self.input.consume(used);
            if done {
                return Ok(Some(word));
            }
        }
    }
}

/// Lines of bounded length.
pub(super) struct Lines<R> {
    input: R,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, number: 0 }
    }

    /// The number of the last line read, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line into `line`; `false` at the end.
    pub(super) fn next(&mut self, line: &mut String) -> Result<bool, ReadError> {
        line.clear();
        self.number += 1;
        let mut bytes = Vec::new();
        let read = Read::by_ref(&mut self.input).take(MOST_BYTES as u64 + 1).read_until(b'\n', &mut bytes)?;
        if read > MOST_BYTES {
            return Err(ReadError::new(format!("line {} is longer than {MOST_BYTES} bytes", self.number)));
        }
        let text =
            std::str::from_utf8(&bytes).map_err(|_| ReadError::new(format!("line {} is not UTF-8", self.number)))?;
        line.push_str(text.trim_end());
        Ok(read > 0)
    }
}
