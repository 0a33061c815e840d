use std::collections::HashSet;

use super::*;
use crate::config::Pipeline;
use crate::error::Error;
use crate::op::NAMES;
use crate::source::DISABLED;

const SOURCE: &str = "[source]\ndirectory = \"data\"\n";

/// Names of the chain's operators in a valid pipeline text.
fn chain(text: &str) -> Vec<&'static str> {
    let pipeline = Pipeline::from_toml(&format!("{SOURCE}{text}"), "");
    let pipeline = pipeline.unwrap_or_else(|error| panic!("{text}\n{error}"));
    pipeline.chain.steps().iter().map(|step| step.operator.name()).collect()
}

/// Error message for an invalid pipeline text.
fn problem(text: &str) -> String {
    match Pipeline::from_toml(&format!("{SOURCE}{text}"), "") {
        Err(Error::Config(error)) => error.problem,
        other => panic!("{text}\n{other:?}"),
    }
}

#[test]
fn every_operator_that_is_suggested_can_be_written() {
    for operator in OPERATORS {
        assert!(!operator.write.is_empty() || !operator.note.is_empty(), "{:?}", operator.names);
        let steps: String =
            operator.write.iter().map(|step| format!("[[chain]]\n{step}\n")).collect();
        assert_eq!(chain(&steps).len(), operator.write.len(), "{:?}", operator.names);
    }
}

#[test]
fn every_setting_that_is_suggested_can_be_written() {
    for key in KEYS {
        assert!(!key.write.is_empty() || !key.note.is_empty(), "{:?}", key.names);
        assert!(key.section.is_empty() || key.of.is_empty(), "{:?}", key.names);
        match key.section {
            "source" if DISABLED.iter().any(|source| key.write.starts_with(source)) => {}
            "source" => drop(Pipeline::from_toml(&format!("[source]\n{}", key.write), "").unwrap()),
            "" => {}
            section => drop(chain(&format!("[{section}]\n{}", key.write))),
        }
        for &operator in key.of {
            let needed = match operator {
                "flip" | "random_iou_crop" => "",
                "pad" => "padding = 1",
                "normalize" => "mean = [0, 0, 0]\nstd = [1, 1, 1]",
                "resize" if key.write.contains('=') && !key.write.contains("filter") => "",
                _ => "width = 9\nheight = 9",
            };
            let is_written = |line: &&str| {
                let name = line.split(" = ").next().unwrap_or_default();
                key.write.lines().any(|written| written.starts_with(name))
            };
            let rest: Vec<_> = needed.lines().filter(|line| !is_written(line)).collect();
            let text =
                format!("[[chain]]\nop = \"{operator}\"\n{}\n{}", rest.join("\n"), key.write);
            assert_eq!(chain(&text), [operator]);
        }
    }
}

#[test]
fn every_choice_that_is_suggested_can_be_written() {
    for (choice, names) in CHOICES {
        let places = [
            format!("[output]\ndtype = \"{choice}\""),
            format!("[output]\nlayout = \"{choice}\""),
            format!("[decode]\nplacement = \"{choice}\""),
            format!("[decode]\nroutes = [\"{choice}\"]"),
            format!("[loader]\nlast_batch = \"{choice}\""),
            format!("[loader]\non_error = \"{choice}\""),
            format!("[[chain]]\nop = \"resize\"\nshorter = 9\nfilter = \"{choice}\""),
        ];
        let known = |text: &String| Pipeline::from_toml(&format!("{SOURCE}{text}"), "").is_ok();
        let place = places.iter().find(|text| known(text)).unwrap_or_else(|| panic!("{choice}"));
        for name in *names {
            let said = problem(&place.replace(choice, name));
            assert!(said.ends_with(&format!("did you mean {choice}?")), "{said}");
        }
    }
}

#[test]
fn a_name_has_one_answer() {
    let mut seen = HashSet::new();
    for name in OPERATORS.iter().flat_map(|operator| operator.names) {
        assert!(seen.insert(plain(name)), "{name}");
        assert!(!NAMES.iter().any(|it| it == name), "{name} is an operator");
    }
    let mut seen = HashSet::new();
    for key in KEYS {
        let of = if key.of.is_empty() { &[""][..] } else { key.of };
        for (name, of) in key.names.iter().flat_map(|name| of.iter().map(move |of| (name, of))) {
            assert!(seen.insert((plain(name), *of)), "{name} of {of}");
        }
    }
}

#[test]
fn operators_of_other_libraries_get_what_to_write() {
    for (name, words) in [
        ("RandomHorizontalFlip", "op = \"flip\", horizontal = 0.5"),
        ("RandomHorizontalFlip(p=0.5)", "op = \"flip\", horizontal = 0.5"),
        ("transforms.v2.RandomHorizontalFlip", "op = \"flip\", horizontal = 0.5"),
        ("random_horizontal_flip", "op = \"flip\", horizontal = 0.5"),
        ("RANDOM-VERTICAL-FLIP", "op = \"flip\", vertical = 0.5"),
        ("RandomHorizontlFlip", "did you mean RandomHorizontalFlip? write op = \"flip\""),
        ("RandomResizedCrop", "op = \"random_resized_crop\", width = 224, height = 224"),
        ("fn.decoders.image_random_crop", "op = \"random_resized_crop\""),
        ("CentreCrop", "op = \"center_crop\""),
        ("Normalise", "op = \"normalize\", mean = [0.485, 0.456, 0.406]"),
        (
            "CropMirrorNormalize",
            "op = \"center_crop\", width = 224, height = 224, then a [[chain]] with op = \"flip\"",
        ),
        ("fn.crop_mirror_normalise", "op = \"normalize\""),
        ("ToTensor", "mean = [0, 0, 0], std = [1, 1, 1]"),
        ("colour_jitter", "did you mean color_jitter?"),
        ("ColorJitter", "did you mean color_jitter?"),
        ("transforms.v2.RandAugment()", "did you mean rand_augment?"),
        ("RandomApply", "did you mean random_apply?"),
        ("RandomBrightnessContrast", "op = \"color_jitter\", brightness = 0.4"),
        ("GridDistortion", "no such operator yet"),
        ("GridDistorton", "did you mean GridDistortion?"),
        ("PadIfNeeded", "random_crop has padding"),
        ("ToPILImage", "leave it out"),
        ("resise", "did you mean resize?"),
        ("something else", "choose one of"),
    ] {
        let said = problem(&format!("[[chain]]\nop = \"{name}\""));
        assert!(said.contains(words) && said.contains(name), "{name}: {said}");
    }
}

#[test]
fn settings_of_other_libraries_get_what_to_write() {
    for (text, words) in [
        ("[loader]\nmax_batch_size = 4", "batch_size = 64 under [loader]"),
        ("[limits]\nbatch_size = 4", "write batch_size under [loader]"),
        ("[loader]\nworker_count = 4", "num_workers = 8 under [loader]"),
        ("[loader]\nnumThreads = 4", "num_workers = 8 under [loader]"),
        ("[loader]\nprefetch_factor = 2", "prefetch = 2 under [loader]"),
        ("[loader]\nprefetch_queue_depth = 2", "prefetch = 2 under [loader]"),
        ("[loader]\ndrop_last = true", "last_batch = \"drop\" under [loader]"),
        ("[loader]\ndrop_last = false", "for false write last_batch = \"partial\""),
        ("[loader]\ndrop_remainder = true", "last_batch = \"drop\" under [loader]"),
        ("[[transforms]]\nop = \"flip\"", "[[chain]]"),
        ("[[operations]]\nop = \"flip\"", "[[chain]]"),
        ("[pipeline]\nop = \"flip\"", "[[chain]]"),
        ("[dataloader]\nbatch_size = 4", "[loader]"),
        ("[data_loader]\nbatch_size = 4", "[loader]"),
        ("[LOADER]\nbatch_size = 4", "did you mean loader?"),
        ("[[column]]\nname = \"v\"\nkind = \"view\"", "write [[view]] instead of [[column]]"),
        ("[[column]]\nname = \"v\"\n[[column.chain]]\nop = \"flip\"", "[[view.chain]] before each"),
        ("[[column]]\nname = \"v\"\ncount = 2", "write [[view]] instead of [[column]]"),
        ("[loader]\nBatch_Size = 4", "did you mean batch_size?"),
        ("[normalize]\nmean = 0", "write [[chain]] with op = \"normalize\""),
        ("[one_of]\noperators = []", "write [[chain]] with op = \"one_of\""),
        ("[data]\npath = \"a\"", "[source]"),
        ("[dataset]\npath = \"a\"", "[source]"),
        ("[loader]\nepochs = 3", "feedwater run --epochs"),
        ("[targets]\nnum_classes = 3", "classes = 1000 under [targets]"),
        ("[storage]\ncache_dir = \"a\"", "cache_directory = \"cache\" under [storage]"),
        ("[storage]\nmax_retries = 3", "retries = 8 under [storage]"),
        ("[loader]\nrandom_shuffle = true", "shuffle = true under [loader]"),
        ("[loader]\nshard_id = 0", "rank = 0 and world_size = 1 under [loader]"),
        ("[loader]\nnum_shards = 2", "world_size = 1 under [loader]"),
        ("[loader]\npin_memory = true", "leave it out"),
        ("[loader]\ndevice_id = 0", "device = \"cuda:0\" or \"cpu\" at the top of the file"),
        ("[limits]\nnum_workers = 4", "write num_workers under [loader]"),
        ("[[chain]]\nop = \"center_crop\"\nsize = 224", "width = 224 and height = 224"),
        ("[[chain]]\nop = \"resize\"\nsize = 224", "shorter = 256"),
        ("[[chain]]\nop = \"resize\"\ninterpolation = \"bilinear\"", "filter = \"bilinear\""),
        ("[[chain]]\nop = \"flip\"\np = 0.5", "horizontal = 0.5"),
        // The names of feedwater's own settings have precedence over those of other libraries.
        ("[loader]\nbatchs = 4", "did you mean batch_size?"),
        ("[loader]\nsize = 4", "the known keys are"),
    ] {
        let said = problem(text);
        assert!(said.contains(words), "{text}: {said}");
    }
    let top = Pipeline::from_toml("num_workers = 3\n[source]\ndirectory = \"a\"", "").unwrap_err();
    assert!(top.to_string().contains("write num_workers under [loader]"), "{top}");
    let source = Pipeline::from_toml("[source]\nfile_root = \"a\"", "").unwrap_err();
    assert!(source.to_string().contains("directory = "), "{source}");
}
