//! A configuration file as it is read: one field a key, nothing checked yet.

use indexmap::IndexMap;
use toml::Spanned;

use rdusim_base::input::{Count, Table};
use rdusim_program::Mapping;

/// The file.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSpec {
    pub(super) schema: Spanned<Count>,
    pub(super) chip: Table<OwnerSpec>,
    pub(super) workload: Table<OwnerSpec>,
    pub(super) runs: Spanned<Vec<Table<RunSpec>>>,
}

/// `chip` and `workload`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OwnerSpec {
    pub(super) name: Spanned<String>,
    pub(super) fingerprint: Spanned<String>,
}

/// `[[runs]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunSpec {
    pub(super) mode: Spanned<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) tiers: Spanned<IndexMap<Spanned<String>, Spanned<String>>>,
    pub(super) sections: Spanned<Vec<Table<SectionSpec>>>,
}

/// `[[runs.sections]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SectionSpec {
    pub(super) operators: Spanned<Vec<Spanned<String>>>,
    pub(super) estimated_cycles: Spanned<Count>,
    pub(super) nest: Spanned<Table<NestSpec>>,
    pub(super) stages: Spanned<Vec<Table<StageSpec>>>,
    pub(super) buffers: Spanned<Vec<Table<BufferSpec>>>,
    pub(super) streams: Spanned<Vec<Table<StreamSpec>>>,
    pub(super) network: Option<Table<NetworkSpec>>,
}

/// `nest` of a section.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NestSpec {
    pub(super) tile_rows: Spanned<Count>,
    pub(super) block_tiles: Spanned<Count>,
    pub(super) order: Spanned<String>,
    pub(super) tiled_axis: Option<Spanned<Table<TiledAxisSpec>>>,
}

/// `tiled_axis` of a nest.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TiledAxisSpec {
    pub(super) columns_of: Option<Spanned<String>>,
    pub(super) rows_of: Option<Spanned<String>>,
    pub(super) tile: Spanned<Count>,
    pub(super) panels: Option<Spanned<Table<PanelsSpec>>>,
}

/// `panels` of a tiled axis.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PanelsSpec {
    pub(super) columns_of: Spanned<String>,
    pub(super) width: Spanned<Count>,
}

/// `[[runs.sections.stages]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageSpec {
    pub(super) operators: Spanned<Vec<Spanned<String>>>,
    pub(super) mapping: Spanned<Mapping>,
    pub(super) pcus: Spanned<Vec<Spanned<[u32; 2]>>>,
}

/// `[[runs.sections.buffers]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BufferSpec {
    pub(super) role: Spanned<String>,
    pub(super) stage: Spanned<String>,
    pub(super) tensor: Spanned<String>,
    pub(super) k_slice: Option<Spanned<Count>>,
    pub(super) level: Spanned<String>,
    pub(super) depth: Spanned<Count>,
    pub(super) slot_bytes: Spanned<Count>,
    pub(super) pieces: Spanned<Vec<Spanned<PieceSpec>>>,
}

/// A piece: its parts.
pub(super) type PieceSpec = Vec<Spanned<Table<PartSpec>>>;

/// A part of a piece.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartSpec {
    pub(super) pmu: Spanned<[u32; 2]>,
    pub(super) banks: Spanned<Count>,
    pub(super) read_port: Spanned<Count>,
    pub(super) write_port: Spanned<Count>,
}

/// `[[runs.sections.streams]]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamSpec {
    pub(super) tensor: Spanned<String>,
    pub(super) direction: Spanned<String>,
    pub(super) level: Spanned<String>,
    pub(super) generators: Spanned<Vec<Spanned<Table<GeneratorSpec>>>>,
}

/// A generator of a stream.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GeneratorSpec {
    pub(super) agcu: Spanned<[u32; 2]>,
    pub(super) generator: Spanned<Count>,
}

/// `[runs.sections.network]`
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkSpec {
    pub(super) routes: Spanned<Vec<Spanned<Table<RouteSpec>>>>,
}

/// A route.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteSpec {
    pub(super) flow: Spanned<String>,
    pub(super) from: Spanned<String>,
    pub(super) to: Spanned<Vec<Spanned<String>>>,
    pub(super) links: Spanned<Vec<Spanned<String>>>,
}
