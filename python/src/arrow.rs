//! A table as a stream of the Arrow C data interface, in a capsule that polars, pyarrow, pandas and duckdb take.
//!
//! The interface is three C structs whose owner is whoever holds them, with a function that releases them
//! (<https://arrow.apache.org/docs/format/CDataInterface.html>, and `CStreamInterface`). Every struct here owns its parts through
//! `private_data`; a release frees them once and clears the struct's own `release`.
#![allow(unsafe_code, reason = "the interface is C structs behind pointers")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

#[repr(C)]
struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Array {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Array,
    dictionary: *mut Array,
    release: Option<unsafe extern "C" fn(*mut Array)>,
    private_data: *mut c_void,
}

#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Stream, *mut Schema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Stream, *mut Array) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Stream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Stream)>,
    private_data: *mut c_void,
}

// SAFETY: the structs own what they point at, and nothing of it belongs to a thread.
unsafe impl Send for Stream {}

/// What the columns hold.
#[derive(Debug, Clone)]
enum Column {
    Whole(Vec<Option<i64>>),
    Real(Vec<Option<f64>>),
    Text(Vec<String>),
}

impl Column {
    /// Whole numbers if every cell is one or empty, else numbers, else text.
    fn of(cells: &[&str]) -> Self {
        fn all<T: std::str::FromStr>(cells: &[&str]) -> Option<Vec<Option<T>>> {
            let number = |cell: &&str| if cell.is_empty() { Some(None) } else { cell.parse().ok().map(Some) };
            cells.iter().map(number).collect()
        }
        if cells.iter().all(|cell| cell.is_empty()) {
            return Self::Text(cells.iter().map(|&cell| cell.to_owned()).collect());
        }
        match (all(cells), all(cells)) {
            (Some(whole), _) => Self::Whole(whole),
            (None, Some(real)) => Self::Real(real),
            _ => Self::Text(cells.iter().map(|&cell| cell.to_owned()).collect()),
        }
    }

    fn format(&self) -> &'static CStr {
        match self {
            Self::Whole(_) => c"l",
            Self::Real(_) => c"g",
            Self::Text(_) => c"U",
        }
    }

    /// Nulls, and the buffers: validity, then values, or offsets and bytes.
    fn buffers(&self) -> (i64, Vec<Vec<u64>>) {
        match self {
            Self::Whole(cells) => numbers(cells, |&number| number.cast_unsigned()),
            Self::Real(cells) => numbers(cells, |number| number.to_bits()),
            Self::Text(cells) => {
                let mut offsets = vec![0_u64];
                let mut bytes = Vec::new();
                for cell in cells {
                    bytes.extend_from_slice(cell.as_bytes());
                    offsets.push(bytes.len() as u64);
                }
                let words = bytes.chunks(8).map(|chunk| {
                    let mut word = [0; 8];
                    word[..chunk.len()].copy_from_slice(chunk);
                    u64::from_ne_bytes(word)
                });
                (0, vec![Vec::new(), offsets, words.collect()])
            }
        }
    }
}

fn numbers<T>(cells: &[Option<T>], bits: impl Fn(&T) -> u64) -> (i64, Vec<Vec<u64>>) {
    let mut valid = vec![0_u64; cells.len().div_ceil(64)];
    for (at, cell) in cells.iter().enumerate() {
        if cell.is_some() {
            // Bit i of byte i/8, whatever the order of bytes in a word.
            let mut bytes = valid[at / 64].to_le_bytes();
            bytes[at % 64 / 8] |= 1 << (at % 8);
            valid[at / 64] = u64::from_le_bytes(bytes);
        }
    }
    let nulls = cells.iter().filter(|cell| cell.is_none()).count();
    let valid = valid.into_iter().map(u64::to_le).collect();
    (i64::try_from(nulls).unwrap_or(-1), vec![valid, cells.iter().map(|cell| cell.as_ref().map_or(0, &bits)).collect()])
}

/// What a schema owns.
struct SchemaParts {
    name: CString,
    children: Vec<*mut Schema>,
}

fn schema(format: &'static CStr, name: CString, children: Vec<Schema>) -> Schema {
    let children: Vec<*mut Schema> = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut parts = Box::new(SchemaParts { name, children });
    Schema {
        format: format.as_ptr(),
        name: parts.name.as_ptr(),
        metadata: ptr::null(),
        flags: 2, // nullable
        n_children: i64::try_from(parts.children.len()).unwrap_or(0),
        children: parts.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: a consumer calls this once, on a struct that `schema` made; children it has moved out have no `release`.
    unsafe {
        let parts: Box<SchemaParts> = Box::from_raw((*schema).private_data.cast());
        for &child in &parts.children {
            let child = Box::from_raw(child);
            let mut child = *child;
            if let Some(release) = child.release {
                release(&raw mut child);
            }
        }
        (*schema).release = None;
    }
}

/// What an array owns.
struct ArrayParts {
    _data: Vec<Vec<u64>>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut Array>,
}

fn array(length: usize, nulls: i64, data: Vec<Vec<u64>>, children: Vec<Array>) -> Array {
    let pointer = |(at, buffer): (usize, &Vec<u64>)| {
        // Without nulls there need be no validity.
        if at == 0 && nulls == 0 { ptr::null() } else { buffer.as_ptr().cast() }
    };
    let buffers = data.iter().enumerate().map(pointer).collect();
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut parts = Box::new(ArrayParts { _data: data, buffers, children });
    let count = |length: usize| i64::try_from(length).unwrap_or(0);
    Array {
        length: count(length),
        null_count: nulls,
        offset: 0,
        n_buffers: count(parts.buffers.len()),
        n_children: count(parts.children.len()),
        buffers: parts.buffers.as_mut_ptr(),
        children: parts.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut Array) {
    // SAFETY: as for schemas.
    unsafe {
        let parts: Box<ArrayParts> = Box::from_raw((*array).private_data.cast());
        for &child in &parts.children {
            let mut child = *Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut child);
            }
        }
        (*array).release = None;
    }
}

/// What a stream owns: the columns, until its one batch is read.
struct StreamParts {
    names: Vec<CString>,
    columns: Vec<Column>,
    rows: usize,
    is_read: bool,
}

unsafe extern "C" fn get_schema(stream: *mut Stream, out: *mut Schema) -> c_int {
    // SAFETY: a consumer hands in the stream that `stream` made, and room for a schema.
    unsafe {
        let parts = &*(*stream).private_data.cast::<StreamParts>();
        let pairs = parts.names.iter().zip(&parts.columns);
        let children = pairs.map(|(name, column)| schema(column.format(), name.clone(), Vec::new())).collect();
        ptr::write(out, schema(c"+s", CString::default(), children));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut Stream, out: *mut Array) -> c_int {
    // SAFETY: as for `get_schema`, and room for an array.
    unsafe {
        let parts = &mut *(*stream).private_data.cast::<StreamParts>();
        if parts.is_read {
            // The end of a stream is an array that is released.
            ptr::write_bytes(out, 0, 1);
            return 0;
        }
        parts.is_read = true;
        let child = |column: &Column| {
            let (nulls, data) = column.buffers();
            array(parts.rows, nulls, data, Vec::new())
        };
        let children = parts.columns.iter().map(child).collect();
        ptr::write(out, array(parts.rows, 0, vec![Vec::new()], children));
    }
    0
}

unsafe extern "C" fn get_last_error(_: *mut Stream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut Stream) {
    // SAFETY: called once, on a struct that `stream` made.
    unsafe {
        drop(Box::<StreamParts>::from_raw((*stream).private_data.cast()));
        (*stream).release = None;
    }
}

/// A capsule with the stream of a table.
pub(crate) fn stream<'py>(py: Python<'py>, names: &[String], rows: &[Vec<String>]) -> PyResult<Bound<'py, PyCapsule>> {
    let columns = (0..names.len()).map(|at| {
        let cells: Vec<&str> = rows.iter().map(|row| row.get(at).map_or("", String::as_str)).collect();
        Column::of(&cells)
    });
    let names: Result<Vec<CString>, _> = names.iter().map(|name| CString::new(name.as_str())).collect();
    let parts = StreamParts {
        names: names.map_err(|error| PyValueError::new_err(error.to_string()))?,
        columns: columns.collect(),
        rows: rows.len(),
        is_read: false,
    };
    let stream = Stream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(parts)).cast(),
    };
    PyCapsule::new_with_value_and_destructor(py, Released(stream), c"arrow_array_stream", |mut held, _| {
        if let Some(release) = held.0.release {
            // SAFETY: whoever takes the stream clears its `release`; else it is still ours.
            unsafe { release(&raw mut held.0) };
        }
    })
}

/// The stream first, as the capsule's pointer is taken for a pointer to it.
#[repr(transparent)]
struct Released(Stream);
