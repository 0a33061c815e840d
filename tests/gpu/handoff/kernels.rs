//! Kernels of users that read and write batches through cudarc.

use super::*;

/// Source of a user's kernel, with the host code that runs it on the simulated machine.
const SUM: &str = r#"
#ifndef __CUDACC__
#define __global__
struct Index { unsigned x; };
static thread_local Index blockIdx, threadIdx, blockDim;
extern "C" void sums(const float*, float*, int);
extern "C" void sums__host(void** p, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned) {
    blockDim.x = bx;
    for (blockIdx.x = 0; blockIdx.x < gx; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < bx; threadIdx.x++)
            sums(*(const float**)p[0], *(float**)p[1], *(int*)p[2]);
}
extern "C" const unsigned sums__param_bytes[] = {8, 8, 4, 0};
#endif
extern "C" __global__ void sums(const float* batch, float* out, int elements) {
    if (threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < elements; i++) sum += batch[blockIdx.x * elements + i];
    out[blockIdx.x] = sum;
}
"#;

/// Launches a user's kernel in the user's stream, on views of a batch. cudarc records two events
/// for each batch.
#[test]
fn a_cudarc_kernel_reads_and_writes_a_batch() {
    let Some(machine) = exclusive() else { return };
    for schedule in SCHEDULES {
        machine.schedule(schedule);
        let mut loader = on_gpu();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let device = Device::open_with(0, &runtime()).unwrap();
        let cubin = kernel::compile(&device, SUM).unwrap();
        let module = context.load_module(Ptx::from_binary(cubin)).unwrap();
        let function = module.load_function("sums").unwrap();
        let mut made = Vec::new();
        for batch in &mut loader {
            let mut tensor = CudaTensor::<f32>::new(batch.unwrap(), &stream).unwrap();
            let (samples, elements) = (tensor.batch().len(), tensor.batch().shape().sample_len());
            assert_eq!(tensor.len(), samples * elements, "a partial batch must be shorter");
            let mut sums = stream.alloc_zeros::<f32>(samples).unwrap();
            let config = LaunchConfig {
                grid_dim: (samples as u32, 1, 1),
                block_dim: (32, 1, 1),
                shared_mem_bytes: 0,
            };
            let (view, elements) = (tensor.view(), elements as i32);
            let mut launch = stream.launch_builder(&function);
            launch.arg(&view).arg(&mut sums).arg(&elements);
            // SAFETY: the arguments match the parameters of the kernel in `SUM`.
            unsafe { launch.launch(config) }.unwrap();
            made.push(sums);
            // Overwrites the batch after the kernel. This must not affect the next batch.
            stream.memset_zeros(&mut tensor.view_mut()).unwrap();
        }
        let made: Vec<f32> =
            made.into_iter().flat_map(|sums| stream.clone_dtoh(&sums).unwrap()).collect();
        let expected: Vec<f32> = expected()[..5]
            .iter()
            .flat_map(|bytes| {
                let values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
                values.chunks(1440).map(|sample| sample.iter().sum()).collect::<Vec<f32>>()
            })
            .collect();
        assert_eq!(made, expected, "{schedule:?}");
        context.synchronize().unwrap();
        drop((loader, function, module, stream, context, device));
        assert_clean(&machine, &format!("{schedule:?}"));
    }
}

/// cudarc records in which streams its slices are used. A slot is refilled only after the work in
/// all of these streams.
#[test]
fn slots_wait_for_uses_that_cudarc_tracks_in_other_streams() {
    let Some(machine) = exclusive() else { return };
    machine.schedule(Schedule::Lazy);
    let expected = expected();
    let mut loader = on_gpu();
    let context = CudaContext::new(0).unwrap();
    let (named, used) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut copies = Vec::new();
    for _ in 0..2 {
        for batch in &mut loader {
            let tensor = CudaTensor::<f32>::new(batch.unwrap(), &named).unwrap();
            used.join(&named).unwrap();
            let mut copy = named.alloc_zeros::<f32>(tensor.len()).unwrap();
            used.memcpy_dtod(&tensor.view(), &mut copy).unwrap();
            copies.push(copy);
        }
    }
    let copies: Vec<Vec<u8>> = copies
        .into_iter()
        .map(|copy| bytemuck::cast_slice(&used.clone_dtoh(&copy).unwrap()).to_vec())
        .collect();
    assert!(copies == expected);
    drop((loader, named, used, context));
    assert_clean(&machine, "tracked");
}
