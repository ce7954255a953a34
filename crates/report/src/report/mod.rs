//! Reports: outcomes become JSON, a table for the terminal, CSV, and pictures.
//!
//! Nothing here looks into the simulator or the compiler: a report is a function of the chip, the workload, and the
//! outcomes or the map of a configuration.

mod against;
mod answer;
mod chart;
mod comparable;
mod counters;
mod csv;
mod describe;
mod document;
mod entries;
mod execution_traces;
mod figures;
#[cfg(test)]
mod fixture;
mod fleet;
mod gaps;
pub mod human;
mod map_files;
mod map_table;
mod mask;
mod metrics;
mod page;
mod percentiles;
mod pod;
mod pod_search;
mod ranges;
mod result_csv;
pub mod screen;
mod section_table;
mod serving;
mod serving_setup;
mod side;
mod stream;
mod study_table;
mod summary;
mod table;
mod text_table;
mod tile_map;
mod trace;
mod uncertainty;
mod validation;
mod verify_table;
mod waterfall;
mod write;

pub use self::against::Against;
pub use self::answer::screen_of;
pub use self::chart::{
    AreaChart, Chart, ChartError, Counted, Curve, CurveChart, Facet, MapChart, MaskChart, PartsChart, PlotData, Series,
    SetChart, StudyPlot, TileChart, TimelineChart, TornadoChart, TornadoRow, WaterfallChart,
};
pub use self::chart::{name_in_words, value_label};
pub use self::csv::{guarded as guarded_cell, sections as sections_csv, traffic as traffic_csv};
pub use self::describe::{chip as describe_chip, count_of_parameters, counted, workload as describe_workload};
pub use self::document::{AgainstEntry, Document, InputsEntry, SCHEMA};
pub use self::entries::{
    ArchEntry, EnergyEntry, RunEntry, SectionEntry, StageEntry, TensorEntry, TrafficEntry, VendorEntry, WorkloadEntry,
};
pub use self::execution_traces::write_traces;
pub use self::fleet::FleetReport;
pub use self::map_files::map_files;
pub use self::map_table::map_table;
pub use self::mask::MaskReport;
pub use self::metrics::{METRICS, Metric, MetricValue};
pub use self::page::{
    BestRow, BufferLayout, Layout, LinkLoads, Made, Page, PageInput, Points, SavedError, SavedResult, SectionLayout,
    StageLayout, UnitShares, View, page_of,
};
pub use self::pod::PodReport;
pub use self::pod_search::SearchReport;
pub use self::ranges::{DrawEntry, RunRanges, UncertaintyEntry, VersusRanges};
pub use self::result_csv::result_csv;
pub use self::serving::ServingReport;
pub use self::serving_setup::ServingSetup;
pub use self::side::Side;
pub use self::stream::StreamReport;
pub use self::study_table::study_table;
pub use self::table::{table, table_of};
pub use self::tile_map::{tile_map_files, tile_map_json, tile_map_table};
pub use self::trace::trace_json;
pub use self::uncertainty::{uncertainty_in_short, uncertainty_table};
pub use self::validation::{fit_table, validation_csv, validation_files, validation_json, validation_table};
pub use self::verify_table::{verify_files, verify_table};
pub use self::waterfall::{Waterfall, WaterfallStep};
pub use self::write::{File, WriteError, files, files_of, note_written, stop_writing, write, write_file};
