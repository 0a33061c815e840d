//! Image files: headers, decoding, and damaged files.

mod alpha;
mod alpha_floats;
mod corrupt;
mod decode;
mod decoders;
mod device_jpeg;
mod encoders;
mod exif;
mod floats;
mod golden;
mod header;
mod indices;
mod jpeg;
mod layout;
mod png_damage;
mod prescaled;
mod progressive;
mod reduced;
mod route;
mod row_index;
mod scripts;
mod tiff;
mod tolerated;
mod verify;
mod windows;

use feedwater_tests::common;
