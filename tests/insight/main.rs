//! Tests explanations and tuning: reports on measured runs, and the settings that the tuner
//! chooses, compared with the best settings.

mod contention;
mod html;
mod prefetch;
mod tune;

use feedwater_tests::common;
