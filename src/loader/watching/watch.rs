//! Thread that samples the utilization of the device.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::Result;
use crate::gpu::Device;
use crate::gpu::nvml::Nvml;
use crate::measure::Meters;
use crate::threads::refused;

/// Device monitor. It stops when this value is dropped.
pub(in crate::loader) struct DeviceMonitor {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl DeviceMonitor {
    /// Starts a thread that reads the utilization at once, and then after each `period`. A failed
    /// reading is counted and does not end the thread.
    pub fn new(device: &Arc<Device>, period: Duration, meters: Arc<Meters>) -> Result<Self> {
        let monitor = Nvml::open(device.runtime())?.monitor(device)?;
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = over.clone();
        let look = move || {
            let (over, changed) = &*seen;
            loop {
                meters.device_reading(&monitor.read());
                let over = over.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = changed.wait_timeout_while(over, period, |over| !*over);
                if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("feedwater-watch".into()).spawn(look);
        let thread = thread
            .map_err(|error| refused("feedwater-watch", &error, "do not watch the device"))?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for DeviceMonitor {
    fn drop(&mut self) {
        let (over, changed) = &*self.over;
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic handler has already printed the message.
            let _ = thread.join();
        }
    }
}
