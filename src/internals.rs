//! What the tests, benches and programs of this repository use besides the public interface.
//!
//! **Unstable**: anything here may change or disappear in any version.

#![allow(missing_docs, reason = "modules by the names that they have in the library")]

macro_rules! internal_modules {
    ($($module:ident),+ $(,)?) => {
        $(
            #[doc(hidden)]
            pub mod $module {
                pub use crate::$module::*;
            }
        )+
    };
}

internal_modules! {
    config, decode, file, geometry, header, image, measure, output, random, ring, tensor, threads, transform, tune,
}
