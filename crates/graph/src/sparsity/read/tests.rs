//! Files as they should be, and as they should not.

use std::io::{Cursor, Write};

use proptest::prelude::*;

use super::*;
use crate::sparsity::BlockMask;

fn wanted() -> MatrixRequest<'static> {
    MatrixRequest { key: None, shape: None, block: (1, 1), density: None, transpose: false }
}

fn read(kind: FileKind, bytes: &[u8], wanted: &MatrixRequest<'_>) -> Result<BlockMask, ReadError> {
    read_mask(kind, Cursor::new(bytes), wanted)
}

fn refused(kind: FileKind, bytes: &[u8], wanted: &MatrixRequest<'_>) -> String {
    read(kind, bytes, wanted).expect_err("is refused").to_string()
}

/// A 3 x 4 matrix with (0, 1), (0, 3), (2, 0) and magnitudes 2, 0.5, 1.
const VALUES: [f32; 12] = [0.0, -2.0, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];

fn npy_with(header: &str, values: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    file.extend(header.bytes());
    file.extend(values);
    file
}

fn npy() -> Vec<u8> {
    let values: Vec<u8> = VALUES.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }\n", &values)
}

fn npz() -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    for name in ["w.npy", "b.npy"] {
        archive.start_file(name, options).expect("in memory");
        archive.write_all(&npy()).expect("in memory");
    }
    archive.finish().expect("in memory").into_inner()
}

fn safetensors_with(header: &str) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(VALUES.iter().flat_map(|v| v.to_le_bytes()));
    file
}

fn safetensors() -> Vec<u8> {
    safetensors_with(r#"{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[3,4],"data_offsets":[0,48]}}"#)
}

const SMTX: &str = "3, 4, 3\n0 2 2 3\n1 3 0\n";
const MTX: &str = "%%MatrixMarket matrix coordinate real general\n% a comment\n3 4 3\n1 2 -2.0\n1 4 0.5\n3 1 1e0\n";

fn examples() -> Vec<(FileKind, Vec<u8>, Option<&'static str>)> {
    vec![
        (FileKind::Smtx, SMTX.into(), None),
        (FileKind::Mtx, MTX.into(), None),
        (FileKind::Npy, npy(), None),
        (FileKind::Npz, npz(), Some("w")),
        (FileKind::Safetensors, safetensors(), None),
    ]
}

fn kept(mask: &BlockMask) -> Vec<(u64, u64)> {
    let all = (0..mask.k_blocks()).flat_map(|k| (0..mask.n_blocks()).map(move |n| (k, n)));
    all.filter(|&(k, n)| mask.is_kept(k, n)).collect()
}

#[test]
fn every_kind_gives_the_same_mask() {
    for (kind, bytes, key) in examples() {
        let plain = read(kind, &bytes, &MatrixRequest { key, ..wanted() }).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!((plain.rows(), plain.columns(), kept(&plain)), (3, 4, vec![(0, 1), (0, 3), (2, 0)]), "{kind:?}");
        let turned = MatrixRequest { key, transpose: true, shape: Some((4, 3)), block: (2, 3), ..wanted() };
        let turned = read(kind, &bytes, &turned).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        assert_eq!((turned.stored_elements(), kept(&turned)), (12, vec![(0, 0), (1, 0)]), "{kind:?}");
        let pruned = read(kind, &bytes, &MatrixRequest { key, density: Some(2.0 / 12.0), ..wanted() });
        match kind {
            FileKind::Smtx => assert!(pruned.expect_err("has no values").to_string().contains("no values")),
            _ => assert_eq!(kept(&pruned.expect("has values")), [(0, 1), (2, 0)], "{kind:?}"),
        }
    }
}

#[test]
fn blocks_of_the_largest_mean_are_kept() {
    // Blocks 2 x 2 of 3 x 4: means 0.5, 0.125 and, of the ragged row, 0.5, 0. Of equals the first by columns stays.
    let kept_of = |density: f64| {
        kept(
            &read(FileKind::Npy, &npy(), &MatrixRequest { block: (2, 2), density: Some(density), ..wanted() })
                .expect("fits"),
        )
    };
    assert_eq!(kept_of(0.25), [(0, 0)]);
    assert_eq!(kept_of(0.5), [(0, 0), (1, 0)]);
    assert_eq!(kept_of(1.0).len(), 4);
}

#[test]
fn other_forms_of_matrix_market() {
    let of = |text: &str| kept(&read(FileKind::Mtx, text.as_bytes(), &wanted()).expect("is read"));
    assert_eq!(of("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n"), [(0, 1), (1, 0), (2, 2)]);
    assert_eq!(of("%%matrixmarket MATRIX array integer general\n2 2\n0\n3\n\n-1\n0\n"), [(0, 1), (1, 0)]);
    assert_eq!(of("%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 0 0\n2 2 0 -1\n"), [(1, 1)]);
}

#[test]
fn what_is_wrong_is_said() {
    let told = |kind, text: &str| refused(kind, text.as_bytes(), &wanted());
    let lines = [
        told(FileKind::Smtx, ""),
        told(FileKind::Smtx, "3, 4"),
        told(FileKind::Smtx, "3, x, 3"),
        told(FileKind::Smtx, "99999999999999999999, 4, 3"),
        told(FileKind::Smtx, "4000000000, 4000000000, 3\n0 0"),
        told(FileKind::Smtx, "2, 2, 99999999999\n0 1 2\n0 1"),
        told(FileKind::Smtx, "3, 4, 3\n0 2 1 3\n1 3 0\n"),
        told(FileKind::Smtx, "3, 4, 3\n0 2 2 2\n1 3 0\n"),
        told(FileKind::Smtx, "3, 4, 3\n0 2 2 3\n1 4 0\n"),
        told(FileKind::Smtx, "3, 4, 3\n0 2 2 3\n1 3\n"),
        told(FileKind::Smtx, "3, 4, 3\n0 2 2 3\n1 3 0 0\n"),
        told(FileKind::Smtx, "2, 2, 0\n0 0 0\n"),
        told(FileKind::Mtx, "hello"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate quaternion general\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate real general\n3 4\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate real general\n3 4 2\n1 1 1\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate real general\n3 4 1\n4 1 1\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate real general\n3 4 1\n1 1 x\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix coordinate real general\n3 4 1\n1 1 1\n1 1 1\n"),
        told(FileKind::Mtx, "%%MatrixMarket matrix array real general\n4294967296 4294967296\n"),
        told(FileKind::Npy, "not one"),
        refused(FileKind::Npy, &npy()[..60], &wanted()),
        refused(FileKind::Npy, &npy()[..100], &wanted()),
        refused(
            FileKind::Npy,
            &npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4, 5)}", &[]),
            &wanted(),
        ),
        refused(FileKind::Npy, &npy_with("{'descr': '<c8', 'fortran_order': False, 'shape': (3, 4)}", &[]), &wanted()),
        refused(
            FileKind::Npy,
            &npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 2)}", &[]),
            &wanted(),
        ),
        refused(FileKind::Npz, &npz(), &wanted()),
        refused(FileKind::Npz, &npz(), &MatrixRequest { key: Some("c"), ..wanted() }),
        refused(FileKind::Npz, b"PK but no archive", &wanted()),
        refused(FileKind::Safetensors, &[255; 20], &wanted()),
        refused(FileKind::Safetensors, &safetensors_with("{}"), &wanted()),
        refused(FileKind::Safetensors, &safetensors_with("{\"w\": 3}"), &wanted()),
        refused(
            FileKind::Safetensors,
            &safetensors_with(r#"{"w":{"dtype":"F32","shape":[3,4],"data_offsets":[0,52]}}"#),
            &wanted(),
        ),
        refused(
            FileKind::Safetensors,
            &safetensors_with(r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#),
            &wanted(),
        ),
        refused(FileKind::Npy, &npy(), &MatrixRequest { shape: Some((4, 3)), ..wanted() }),
        refused(FileKind::Npy, &npy(), &MatrixRequest { shape: Some((5, 5)), ..wanted() }),
        refused(FileKind::Npy, &npy(), &MatrixRequest { key: Some("w"), ..wanted() }),
        refused(FileKind::Npy, &npy(), &MatrixRequest { density: Some(0.01), ..wanted() }),
        refused(
            FileKind::Npy,
            &npy_with("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1)}", &f32::NAN.to_le_bytes()),
            &MatrixRequest { density: Some(1.0), ..wanted() },
        ),
    ];
    insta::assert_snapshot!(lines.join("\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn damaged_files_are_refused_or_read(
        which in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        prune: bool,
    ) {
        let (kind, mut bytes, key) = examples().swap_remove(which);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let wanted = MatrixRequest { key, density: prune.then_some(0.5), shape: Some((3, 4)), ..wanted() };
        if let Ok(mask) = read(kind, &bytes, &wanted) {
            prop_assert_eq!((mask.rows(), mask.columns()), (3, 4));
            prop_assert!(mask.kept_blocks() > 0);
        }
    }

    #[test]
    fn any_bytes_are_survived(which in 0usize..5, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(FileKind::ALL[which], &bytes, &MatrixRequest { shape: Some((3, 4)), ..wanted() });
    }
}
