//! nvJPEG.
