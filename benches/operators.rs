//! What operators cost on the CPU, one core: every operator's examples by reference and fast path, and
//! resampling beside `fast_image_resize`, which is within a level of Pillow where ours is exact.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fast_image_resize as fir;

use feedwater::geometry::{Roi, Size};
use feedwater::image::{HostImage, Image, PixelType};
use feedwater::op::resample::{self, Filter, Resampler};
use feedwater::op::{self, AnyOperator, Normalize, Wanted, normalize};
use feedwater::output::Tail;
use feedwater::random::{SampleKey, SampleRng};
use feedwater::tensor::{DType, Layout};

const PICTURE: Size = Size::new(500, 375);

fn picture(size: Size) -> Image<u8> {
    let data =
        (0..3 * size.pixels()).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    Image::from_data(size.window(), data)
}

/// The input of an operator: bytes, or floats where it takes only those.
fn input(op: &Arc<dyn AnyOperator>) -> HostImage {
    match op.pixels(PixelType::U8) {
        Ok(_) => HostImage::U8(picture(PICTURE)),
        Err(_) => HostImage::new(PixelType::F32, PICTURE.window()),
    }
}

fn operators(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("operator");
    for (example, op) in op::examples().iter().enumerate() {
        let src = input(op);
        let mut rng = SampleRng::new(SampleKey::default(), 0);
        let (size, mut params) = op.prepare(PICTURE, &mut rng);
        let mut table = Vec::new();
        let wanted = Wanted { input: PICTURE, reduction: 1, output: size.window() };
        op.demand(&mut params, wanted, &mut table);
        let pixels = op.pixels(src.pixels()).expect("the input was chosen for it");
        let mut out = HostImage::new(pixels, size.window());
        let name = |path: &str| {
            format!("op={}/device=cpu/size={PICTURE}/example={example}/path={path}", op.name())
        };
        group.throughput(Throughput::Elements(size.pixels()));
        group.bench_function(name("reference"), |bencher| {
            bencher.iter(|| op.reference(&params, &table, black_box(&src), &mut out));
        });
        group.bench_function(name("apply"), |bencher| {
            bencher.iter(|| op.apply(&params, &table, black_box(&src), &mut out));
        });
    }
}

fn resampling(criterion: &mut Criterion) {
    let to = Size::new(224, 224);
    let cases = [
        (Size::new(500, 375), Roi::new(60, 40, 300, 260)),
        (Size::new(500, 375), Roi::new(0, 0, 500, 375)),
        (Size::new(500, 375), Roi::new(200, 100, 150, 130)),
        (Size::new(2048, 1536), Roi::new(300, 200, 1200, 1000)),
        (Size::new(2048, 1536), Roi::new(0, 0, 2048, 1536)),
    ];
    let filters = [
        (Filter::Bilinear, fir::FilterType::Bilinear, "bilinear"),
        (Filter::Bicubic, fir::FilterType::CatmullRom, "bicubic"),
    ];
    let mut group = criterion.benchmark_group("resample");
    for (size, window) in cases {
        for (filter, fir_filter, filter_name) in filters {
            let name = |path: &str| {
                format!("size={size}/window={window}/filter={filter_name}/path={path}")
            };
            let src = picture(size);
            let mut params = resample::Params::new(window, to);
            let mut table = Vec::new();
            let wanted = Wanted { input: size, reduction: 1, output: to.window() };
            let demanded = resample::fill_table(&mut params, wanted, filter, &mut table);

            let Normalize { mean, std } = Normalize::IMAGENET;
            let tail = Tail::new(Some(&normalize::Params { mean, std }), DType::F32, Layout::Nchw);
            let mut line = vec![0; 3 * 224];
            let mut tensor = vec![0f32; 3 * 224 * 224];
            let mut resampler = Resampler::default();
            for stored in [false, true] {
                let path = if stored { "ours_normalized" } else { "ours" };
                group.bench_function(name(path), |bencher| {
                    bencher.iter(|| {
                        table.clear();
                        resample::fill_table(&mut params, wanted, filter, &mut table);
                        resampler.begin(&params, &table, src.window());
                        for y in demanded.y..demanded.bottom() {
                            resampler.push_row(y, src.row(y));
                            while let Some(y) = resampler.next_output() {
                                resampler.output_row(y, &mut line);
                                if stored {
                                    let out = bytemuck::cast_slice_mut(&mut tensor);
                                    tail.store_row(&line, y, (224, 224), false, out);
                                }
                                black_box(&line);
                            }
                        }
                    });
                });
            }

            let rgba = src.data().as_chunks::<3>().0.iter().flat_map(|&[r, g, b]| [r, g, b, 255]);
            let rgba = rgba.collect::<Vec<u8>>();
            let pixels = fir::PixelType::U8x4;
            let fir_src =
                fir::images::Image::from_vec_u8(size.width, size.height, rgba, pixels).unwrap();
            let mut fir_out = fir::images::Image::new(to.width, to.height, pixels);
            let options = fir::ResizeOptions::new()
                .resize_alg(fir::ResizeAlg::Convolution(fir_filter))
                .use_alpha(false)
                .crop(window.x.into(), window.y.into(), window.width.into(), window.height.into());
            let mut resizer = fir::Resizer::new();
            group.bench_function(name("fast_image_resize"), |bencher| {
                bencher.iter(|| {
                    resizer.resize(black_box(&fir_src), &mut fir_out, &options).unwrap();
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(300))
        .measurement_time(std::time::Duration::from_secs(1));
    targets = resampling, operators
}
criterion_main!(benches);
