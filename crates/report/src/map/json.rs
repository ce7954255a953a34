//! A map as JSON that people can scroll through: a line for every stage, buffer, stream, link and route.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use super::entries::Map;

impl Map {
    /// The object as JSON with a line break at the end.
    pub fn to_json(&self) -> String {
        let mut bytes = Vec::new();
        let mut serializer = Serializer::with_formatter(&mut bytes, Outline::default());
        self.serialize(&mut serializer).expect("strings, numbers and sequences always serialise");
        bytes.push(b'\n');
        String::from_utf8(bytes).expect("serde_json writes UTF-8")
    }
}

/// Levels that are broken into lines: the map, its sections, a section, its lists.
const BROKEN: usize = 4;

/// Breaks the outer levels into lines and leaves what is further in on one.
#[derive(Debug, Default)]
struct Outline {
    depth: usize,
    /// Whether something stands in the list or object being written.
    has_value: bool,
}

impl Outline {
    fn open<W: io::Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        self.depth += 1;
        self.has_value = false;
        writer.write_all(&[bracket])
    }

    fn close<W: io::Write + ?Sized>(&mut self, writer: &mut W, bracket: u8) -> io::Result<()> {
        let breaks = self.depth <= BROKEN && self.has_value;
        self.depth -= 1;
        if breaks {
            self.new_line(writer)?;
        }
        writer.write_all(&[bracket])
    }

    fn next<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        match (first, self.depth <= BROKEN) {
            (true, false) => return Ok(()),
            (false, false) => return writer.write_all(b", "),
            (false, true) => writer.write_all(b",")?,
            (true, true) => {}
        }
        self.new_line(writer)
    }

    fn new_line<W: io::Write + ?Sized>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Outline {
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b'[')
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b']')
    }

    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn end_array_value<W: io::Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b'{')
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b'}')
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, first)
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: io::Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.has_value = true;
        Ok(())
    }
}
