//! Tests every source: samples, errors, and combinations.

mod annotation;
mod bad_shards;
mod beton;
mod classes;
mod coco;
mod coco_forms;
mod combine;
mod index;
mod largest;
mod list;
mod lmdb;
mod npy;
mod parquet;
mod raw;
mod recordio;
mod slivers;
mod source;
mod tfrecord;
mod webdataset;

use feedwater_tests::common;
