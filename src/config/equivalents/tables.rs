//! Operators and choices of other libraries, with their equivalents in feedwater.

/// Operator of another library.
pub struct Operator {
    /// Names of the operator. Case, underscores, module prefixes and arguments are ignored.
    pub names: &'static [&'static str],
    /// Equivalent operators with their settings, as TOML; empty if there is no equivalent.
    pub write: &'static [&'static str],
    /// Note that is added to the suggestion.
    pub note: &'static str,
}

const IMAGENET: &str =
    "op = \"normalize\"\nmean = [0.485, 0.456, 0.406]\nstd = [0.229, 0.224, 0.225]";
const CENTER_CROP: &str = "op = \"center_crop\"\nwidth = 224\nheight = 224";
const FLIP: &str = "op = \"flip\"\nhorizontal = 0.5";

pub const OPERATORS: &[Operator] = &[
    Operator {
        names: &["RandomHorizontalFlip", "HorizontalFlip", "hflip", "Flip", "RandomFlip"],
        write: &[FLIP],
        note: "a probability, 0 to 1",
    },
    Operator {
        names: &["RandomVerticalFlip", "VerticalFlip", "vflip"],
        write: &["op = \"flip\"\nvertical = 0.5"],
        note: "a probability, 0 to 1",
    },
    Operator {
        names: &[
            "RandomResizedCrop",
            "RandomSizedCrop",
            "image_random_crop",
            "ImageDecoderRandomCrop",
        ],
        write: &["op = \"random_resized_crop\"\nwidth = 224\nheight = 224"],
        note: "only the crop is decoded",
    },
    Operator { names: &["CenterCrop"], write: &[CENTER_CROP], note: "" },
    Operator {
        names: &["FiveCrop"],
        write: &["op = \"five_crop\"\nwidth = 224\nheight = 224"],
        note: "in the chain of a [[view]], whose column has an axis for the crops",
    },
    Operator {
        names: &["TenCrop"],
        write: &["op = \"ten_crop\"\nwidth = 224\nheight = 224"],
        note: "in the chain of a [[view]], whose column has an axis for the crops",
    },
    Operator {
        names: &["RandomCrop"],
        write: &["op = \"random_crop\"\nwidth = 224\nheight = 224"],
        note: "it also has padding, pad_if_needed and fill",
    },
    Operator {
        names: &["Crop", "Slice", "image_crop", "ImageDecoderCrop"],
        write: &["op = \"crop\"\nx = 0\ny = 0\nwidth = 224\nheight = 224"],
        note: "DALI's crop without a position is center_crop",
    },
    Operator {
        names: &["Resize", "Scale", "SmallestMaxSize", "resize_shorter"],
        write: &["op = \"resize\"\nshorter = 256"],
        note: "or longer, or width and height",
    },
    Operator {
        names: &["LongestMaxSize", "resize_longer"],
        write: &["op = \"resize\"\nlonger = 256"],
        note: "",
    },
    Operator {
        names: &["Normalize"],
        write: &[IMAGENET],
        note: "for pixels from 0 to 1: divide DALI's values by 255",
    },
    Operator {
        names: &["CropMirrorNormalize"],
        write: &[CENTER_CROP, FLIP, IMAGENET],
        note: "divide DALI's mean and std by 255",
    },
    Operator {
        names: &["ResizeCropMirror", "FastResizeCropMirror"],
        write: &["op = \"resize\"\nshorter = 256", CENTER_CROP, FLIP],
        note: "",
    },
    Operator {
        names: &["ImageClassification"],
        write: &["op = \"resize\"\nshorter = 256", CENTER_CROP, IMAGENET],
        note: "the transforms of torchvision's weights",
    },
    Operator {
        names: &["ToTensor", "ConvertImageDtype", "ToDtype", "ToFloat", "Cast"],
        write: &["op = \"normalize\"\nmean = [0, 0, 0]\nstd = [1, 1, 1]"],
        note: "scales pixels to 0 to 1; omit it if another normalize follows; output.dtype is the type of the elements",
    },
    Operator {
        names: &["PILToTensor", "ToImage", "ToTensorV2", "ToPureTensor", "Transpose"],
        write: &[],
        note: "leave it out: batches are tensors; output.dtype and output.layout set type and layout",
    },
    Operator {
        names: &["ToPILImage", "image", "ImageDecoder", "DecodeImage", "RGB", "ToRGB"],
        write: &[],
        note: "leave it out: images are decoded to RGB before the chain",
    },
    Operator {
        names: &["FileReader", "ImageFolder", "DatasetFolder", "readers.file"],
        write: &[],
        note: "leave it out: [source] names the images, as in directory = \"data/train\"",
    },
    Operator {
        names: &["Compose", "Sequential"],
        write: &[],
        note: "write a [[chain]] for each step; every step is applied to every sample, in this order",
    },
    Operator {
        names: &["PadIfNeeded", "Paste"],
        write: &[],
        note: "there is no such operator yet; random_crop has padding, pad_if_needed and fill, center_crop fills around \
               smaller images, and pad adds the same to every image",
    },
    Operator {
        names: &[
            "RGBShift",
            "MedianBlur",
            "MotionBlur",
            "Shot",
            "RandomRotate90",
            "GridDistortion",
            "OpticalDistortion",
            "CLAHE",
            "LinearTransformation",
            "Permute",
        ],
        write: &[],
        note: "there is no such operator yet; apply it to the batch in the training loop, or write an operator in Rust \
               (examples/02-own-operator.rs)",
    },
    Operator {
        names: &["MixUp", "CutMix"],
        write: &[],
        note: "it mixes samples of a batch: write op = \"mixup\", \"cutmix\" or \"mixup_or_cutmix\" under \
               [[batch_operators]], and targets.classes",
    },
    Operator {
        names: &["Sometimes"],
        write: &[],
        note: "write op = \"random_apply\", and its operators as [[chain.operators]]",
    },
    Operator {
        names: &["RandomChoice"],
        write: &[],
        note: "write op = \"one_of\", and its operators as [[chain.operators]]",
    },
    Operator {
        names: &["BrightnessContrast", "RandomBrightnessContrast", "HueSaturationValue", "Hsv"],
        write: &["op = \"color_jitter\"\nbrightness = 0.4\ncontrast = 0.4\nhue = 0.1"],
        note: "",
    },
    Operator {
        names: &["CopyMakeBorder"],
        write: &["op = \"pad\"\npadding = 4"],
        note: "mode = \"edge\", \"reflect\" or \"symmetric\" for other borders",
    },
    Operator {
        names: &["JpegCompressionDistortion", "JPEG", "ImageCompression"],
        write: &["op = \"jpeg_distortion\"\nquality = [50, 100]"],
        note: "",
    },
    Operator { names: &["ElasticTransform"], write: &["op = \"elastic\""], note: "" },
    Operator {
        names: &["RandomBBoxCrop", "RandomSizedBBoxSafeCrop"],
        write: &["op = \"random_iou_crop\""],
        note: "the boxes are those of the source",
    },
    Operator {
        names: &["Lambda", "PythonFunction"],
        write: &["op = \"pointwise\"\nexpr = \"x * 0.5\""],
        note: "if it maps each channel's value (0 to 1) by itself; otherwise apply it to the batch in the training loop, or \
               write an operator in Rust (examples/02-own-operator.rs)",
    },
    Operator { names: &["ToGray"], write: &["op = \"grayscale\""], note: "" },
    Operator { names: &["ColorSpaceConversion"], write: &["op = \"to_ycbcr\""], note: "" },
    Operator {
        names: &["GaussianFilter", "Blur"],
        write: &["op = \"gaussian_blur\"\nkernel_size = 9"],
        note: "",
    },
    Operator { names: &["GaussNoise"], write: &["op = \"gaussian_noise\""], note: "" },
    Operator {
        names: &["WarpAffine", "ShiftScaleRotate"],
        write: &["op = \"random_affine\"\ndegrees = 15"],
        note: "or affine, which is not random",
    },
    Operator { names: &["CoarseDropout", "Erase"], write: &["op = \"random_erasing\""], note: "" },
    Operator { names: &["GridDropout"], write: &["op = \"grid_mask\""], note: "" },
    Operator { names: &["TrivialAugment"], write: &["op = \"trivial_augment_wide\""], note: "" },
    Operator { names: &["ChannelShuffle"], write: &["op = \"channel_permutation\""], note: "" },
    Operator {
        names: &["RandomEqualize"],
        write: &["op = \"equalize\""],
        note: "inside of random_apply",
    },
    Operator {
        names: &["RandomAutocontrast"],
        write: &["op = \"autocontrast\""],
        note: "inside of random_apply",
    },
    Operator {
        names: &["RandomPosterize"],
        write: &["op = \"posterize\"\nbits = 4"],
        note: "inside of random_apply",
    },
    Operator {
        names: &["RandomSolarize"],
        write: &["op = \"solarize\"\nthreshold = 128"],
        note: "inside of random_apply",
    },
    Operator {
        names: &["RandomInvert"],
        write: &["op = \"invert\""],
        note: "inside of random_apply",
    },
    Operator {
        names: &["RandomAdjustSharpness"],
        write: &["op = \"sharpness\"\nfactor = 2"],
        note: "inside of random_apply",
    },
];

/// Choices of feedwater, each with the equivalent values of other libraries.
pub const CHOICES: &[(&str, &[&str])] = &[
    ("f32", &["float32", "float", "torch.float32", "fp32"]),
    ("f16", &["float16", "half", "torch.float16", "fp16"]),
    ("bf16", &["bfloat16", "torch.bfloat16"]),
    ("u8", &["uint8", "torch.uint8", "byte"]),
    ("nchw", &["chw", "channels_first", "contiguous_format"]),
    ("nhwc", &["hwc", "channels_last"]),
    (
        "bilinear",
        &[
            "linear",
            "triangular",
            "INTERP_LINEAR",
            "INTERP_TRIANGULAR",
            "InterpolationMode.BILINEAR",
        ],
    ),
    ("bicubic", &["cubic", "INTERP_CUBIC", "InterpolationMode.BICUBIC"]),
    ("nearest", &["nn", "nearest_exact", "INTERP_NN", "INTERP_NEAREST"]),
    ("lanczos", &["lanczos3", "lanczos4", "INTERP_LANCZOS3", "INTERP_LANCZOS4"]),
    ("gpu", &["cuda", "cuda:0", "mixed", "device"]),
    ("cpu", &["host"]),
    ("nvjpeg-gpu", &["gpu", "nvjpeg"]),
    ("partial", &["keep", "LastBatchPolicy.PARTIAL"]),
    ("pad", &["fill", "LastBatchPolicy.FILL"]),
    ("skip", &["ignore", "continue"]),
    ("stop", &["raise", "error", "fail", "strict"]),
];
