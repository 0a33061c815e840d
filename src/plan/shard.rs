//! Shard of the set that a loader reads, from the settings or a launcher's environment variables.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;

use serde::Serialize;

use crate::error::{Error, Result};

use super::{LoaderSettings, Plan, ShardFrom};

/// Shard of the data set that a loader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shard {
    /// Index of the shard, from 0, below `world`.
    pub rank: u64,
    /// Number of loaders that share an epoch, at least 1.
    pub world: u64,
    /// Origin of rank and world: `settings`, the name of a launcher, or `none`.
    pub from: &'static str,
}

/// Snapshot of the launchers' environment variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<&'static str, String>);

/// Launcher, and its variables for rank and world size.
struct Launcher {
    choice: ShardFrom,
    name: &'static str,
    rank: &'static str,
    world: &'static str,
    /// Variables that may hold the local rank: the rank among this machine's processes.
    local: &'static [&'static str],
}

/// Launchers in order of precedence: each is listed before those that may have started it.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        choice: ShardFrom::OpenMpi,
        name: "openmpi",
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Launcher {
        choice: ShardFrom::Mpich,
        name: "mpich",
        rank: "PMI_RANK",
        world: "PMI_SIZE",
        local: &["MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
    },
    Launcher {
        choice: ShardFrom::Slurm,
        name: "slurm",
        rank: "SLURM_PROCID",
        world: "SLURM_STEP_NUM_TASKS",
        local: &["SLURM_LOCALID"],
    },
    Launcher {
        choice: ShardFrom::Torchrun,
        name: "torchrun",
        rank: RANK,
        world: WORLD,
        local: &[LOCAL_RANK],
    },
    Launcher {
        choice: ShardFrom::Kubernetes,
        name: "kubernetes",
        rank: JOB_INDEX,
        world: WORLD,
        local: &[],
    },
];

const RANK: &str = "RANK";
const WORLD: &str = "WORLD_SIZE";
const LOCAL_RANK: &str = "LOCAL_RANK";
const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";
/// Variable that only torchrun sets.
const TORCHRUN: &str = "TORCHELASTIC_RUN_ID";
/// Variable with the world size under old versions of Slurm without `SLURM_STEP_NUM_TASKS`, or if
/// Slurm is configured not to change the job's variables.
const SLURM_TASKS: &str = "SLURM_NTASKS";
/// Variable that Slurm sets only in a task of `srun` and in the interactive step.
const SLURM_STEP: &str = "SLURM_STEP_ID";
/// Variable that `srun --pty` sets.
const SLURM_TERMINAL: &str = "SLURM_PTY_PORT";
/// Lowest of the step numbers that Slurm reserves for steps that are not tasks. It is the number of
/// the interactive step (slurm.h).
const SLURM_FIRST_SPECIAL: u64 = 0xffff_fffa;

/// End of every error message about the shard: how to set the shard explicitly.
const WAY_OUT: &str = "or write loader.shard = \"none\" (this process reads the whole set) or a launcher's name, or \
     loader.rank and loader.world_size";

impl Environment {
    /// Reads the variables of this process.
    pub fn of_process() -> Self {
        let names = LAUNCHERS.iter().flat_map(|it| [it.rank, it.world]);
        let others = [TORCHRUN, SLURM_TASKS, SLURM_STEP, SLURM_TERMINAL];
        let local = LAUNCHERS.iter().flat_map(|it| it.local.iter().copied());
        let set = names.chain(local).chain(others).filter_map(|name| {
            Some((name, std::env::var_os(name)?.to_string_lossy().into_owned()))
        });
        Self(set.collect())
    }

    /// Local rank, and the variable that holds it. `None` if no launcher sets one. `LOCAL_RANK` has
    /// precedence, because training programs choose their GPU by it.
    pub(super) fn local_rank(&self) -> Result<Option<(&'static str, u64)>> {
        // In batch scripts, which run only once, Slurm's local rank has no meaning and is ignored.
        let in_task = |it: &&Launcher| it.choice != ShardFrom::Slurm || it.is_there(self);
        let launchers = LAUNCHERS.iter().filter(in_task);
        let names = launchers.flat_map(|it| it.local.iter().copied());
        let Some(name) = iter::once(LOCAL_RANK).chain(names).find(|name| self.has(name)) else {
            return Ok(None);
        };
        let text = &self.0[name];
        let rank = text.trim().parse().map_err(|_| {
            let problem = format!(
                "{name} is \"{text}\", which is not a whole number; correct it, or write cpu or cuda:N"
            );
            Error::config("device", problem)
        })?;
        Ok(Some((name, rank)))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Parses the number in a variable. `None` if the variable is not set.
    fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        text.trim().parse().map(Some).map_err(|_| {
            problem(format!(
                "{name} is \"{text}\", which is not a whole number; correct it, {WAY_OUT}"
            ))
        })
    }
}

impl FromIterator<(&'static str, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'static str, String)>>(variables: I) -> Self {
        Self(variables.into_iter().collect())
    }
}

impl Shard {
    /// The whole data set, as a single shard.
    pub const WHOLE: Self = Self { rank: 0, world: 1, from: "none" };

    /// Resolves settings and environment to a shard.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if settings and environment contradict each other, as described at
    /// [`ShardFrom`].
    pub fn resolve(loader: &LoaderSettings, environment: &Environment) -> Result<Self> {
        match (loader.rank, loader.world_size, loader.shard) {
            (Some(rank), Some(world), ShardFrom::Environment) => {
                Ok(Self { rank, world, from: "settings" })
            }
            (Some(_), Some(_), _) => Err(problem(
                "is set, but loader.rank and loader.world_size already determine the shard; \
                 remove loader.shard",
            )),
            (Some(rank), None, _) => {
                let text = format!("is missing, but loader.rank is {rank}; set both or neither");
                Err(Error::config("loader.world_size", text))
            }
            (None, world, choice) => {
                let shard = match LAUNCHERS.iter().find(|it| it.choice == choice) {
                    Some(launcher) => launcher.tells(environment, world)?,
                    None if choice == ShardFrom::None => Self::WHOLE,
                    None => find(environment, world)?.unwrap_or(Self::WHOLE),
                };
                match world {
                    Some(world) if world != shard.world => Err(Error::config(
                        "loader.world_size",
                        format!(
                            "is {world}, but this process is {shard}; correct one of them, remove \
                             loader.world_size, or set loader.rank too"
                        ),
                    )),
                    _ => Ok(shard),
                }
            }
        }
    }
}

impl Plan {
    /// Warning if this process reads only a part of the set, and only because a launcher's
    /// variables are set.
    pub(crate) fn shard_of_launcher(&self) -> Option<String> {
        let (loader, shard) = (&self.settings.loader, &self.shard);
        let chosen =
            loader.shard != ShardFrom::Environment || loader.rank.or(loader.world_size).is_some();
        let launcher = LAUNCHERS.iter().find(|it| it.name == shard.from)?;
        (!chosen && shard.world > 1).then(|| {
            format!(
                "this process reads only one of {} parts of the set, because the environment \
                 variable {} says that it is rank {} of {} ({}). To read the whole set, set \
                 loader.shard = \"none\". To read a part without this warning, set loader.shard = \
                 \"{}\", or loader.rank and loader.world_size",
                shard.world, launcher.rank, shard.rank, shard.world, launcher.name, launcher.name
            )
        })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, from } = self;
        let from = match *from {
            "settings" => "loader.rank and loader.world_size",
            "none" => "no launcher",
            launcher => launcher,
        };
        write!(f, "rank {rank} of {world} ({from})")
    }
}

/// Shard according to the launcher that started this process. `None` if there is no launcher.
fn find(environment: &Environment, world: Option<u64>) -> Result<Option<Shard>> {
    let there = |it: &&Launcher| match environment.has(TORCHRUN) {
        true => it.choice == ShardFrom::Torchrun,
        false => it.is_there(environment),
    };
    let mut launchers = LAUNCHERS.iter().filter(there);
    let Some(first) = launchers.next() else { return Ok(None) };
    let shard = first.tells(environment, world)?;
    if first.choice == ShardFrom::Slurm && shard.world > 1 && environment.has(SLURM_TERMINAL) {
        return Err(problem(format!(
            "{}, but every process that is started from this shell inherits these variables \
             ({SLURM_TERMINAL} is set); write loader.shard = \"slurm\" if srun has started this \
             very process, {WAY_OUT}",
            first.says(environment)
        )));
    }
    for other in launchers {
        let must_agree = matches!(
            (first.choice, other.choice),
            (ShardFrom::OpenMpi, ShardFrom::Mpich) | (_, ShardFrom::Torchrun)
        );
        let differs = |name: &str, value: u64| -> Result<bool> {
            Ok(environment.number(name)?.is_some_and(|it| it != value))
        };
        if must_agree && (differs(other.rank, shard.rank)? || differs(other.world, shard.world)?) {
            return Err(problem(format!(
                "{}, but {}; unset the variables that are wrong, {WAY_OUT}",
                first.says(environment),
                other.says(environment)
            )));
        }
    }
    Ok(Some(shard))
}

impl Launcher {
    /// Whether the launcher's variables are set and apply to this process.
    fn is_there(&self, environment: &Environment) -> bool {
        match self.choice {
            // A step number that cannot be parsed still means that the process runs in a step.
            ShardFrom::Slurm => environment
                .0
                .get(SLURM_STEP)
                .is_some_and(|it| it.parse().map_or(true, |step: u64| step < SLURM_FIRST_SPECIAL)),
            ShardFrom::Kubernetes => environment.has(self.rank),
            // Without `RANK`, `WORLD_SIZE` may belong to a Kubernetes pod, whose rank is its index.
            ShardFrom::Torchrun if !environment.has(RANK) => {
                environment.has(WORLD) && !environment.has(JOB_INDEX)
            }
            _ => environment.has(self.rank) || environment.has(self.world),
        }
    }

    /// Shard according to the launcher's variables. `written` is `loader.world_size`.
    fn tells(&self, environment: &Environment, written: Option<u64>) -> Result<Shard> {
        let rank = environment.number(self.rank)?;
        let world = match environment.number(self.world_variable(environment))? {
            None if self.choice == ShardFrom::Kubernetes => written,
            world => world,
        };
        let (Some(rank), Some(world)) = (rank, world) else {
            let missing = if rank.is_none() { self.rank } else { self.world };
            let also = match self.choice {
                ShardFrom::Kubernetes if rank.is_some() => {
                    " to the number of pods (the job's completions), write loader.world_size"
                }
                _ => "",
            };
            let says = self.says(environment);
            return Err(problem(format!("{says}; set {missing}{also}, {WAY_OUT}")));
        };
        if rank >= world {
            let says = self.says(environment);
            let text = format!("{says}: the rank must be below the world size; fix it, {WAY_OUT}");
            return Err(problem(text));
        }
        Ok(Shard { rank, world, from: self.name })
    }

    /// Name of the variable that holds the world size.
    fn world_variable(&self, environment: &Environment) -> &'static str {
        let older = self.choice == ShardFrom::Slurm && !environment.has(self.world);
        if older { SLURM_TASKS } else { self.world }
    }

    /// The launcher's variables and their values, for messages.
    fn says(&self, environment: &Environment) -> String {
        let value = |name: &str| match environment.0.get(name) {
            Some(text) => format!("{name} is {text}"),
            None => format!("{name} is not set"),
        };
        let world = value(self.world_variable(environment));
        format!("{} and {world} ({})", value(self.rank), self.name)
    }
}

fn problem(text: impl Into<String>) -> Error {
    Error::config("loader.shard", text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ConfigError;

    fn environment(text: &str) -> Environment {
        text.split_whitespace()
            .map(|it| {
                let (name, value) = it.split_once('=').unwrap();
                (&*name.to_string().leak(), value.to_string())
            })
            .collect()
    }

    /// Rank, world size and their origin.
    type Found = (u64, u64, &'static str);

    const WHOLE: Found = (0, 1, "none");

    fn config(error: Error) -> ConfigError {
        let Error::Config(error) = error else { panic!("{error}") };
        error
    }

    fn resolve(shard: ShardFrom, world: Option<u64>, text: &str) -> Result<Found, ConfigError> {
        let loader = LoaderSettings { shard, world_size: world, ..Default::default() };
        let found = Shard::resolve(&loader, &environment(text));
        found.map(|it| (it.rank, it.world, it.from)).map_err(config)
    }

    fn found(text: &str) -> Found {
        resolve(ShardFrom::Environment, None, text).unwrap()
    }

    fn refused(text: &str) -> ConfigError {
        resolve(ShardFrom::Environment, None, text).unwrap_err()
    }

    #[track_caller]
    fn assert_has(error: &ConfigError, key: &str, values: &[&str]) {
        assert_eq!(error.key, key, "{error}");
        for value in values {
            assert!(error.problem.contains(value), "{value}: {error}");
        }
    }

    /// Settings that every error suggests.
    const WAYS_OUT: &[&str] = &["loader.shard = \"none\"", "loader.rank", "loader.world_size"];

    const STEP: &str = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8";

    #[test]
    fn each_launcher_is_detected_by_its_variables() {
        assert_eq!(found(""), WHOLE);
        assert_eq!(found("RANK=3 WORLD_SIZE=8"), (3, 8, "torchrun"));
        let mpi = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8";
        assert_eq!(found(mpi), (3, 8, "openmpi"));
        assert_eq!(found("PMI_RANK=3 PMI_SIZE=8"), (3, 8, "mpich"));
        assert_eq!(found(STEP), (3, 8, "slurm"));
        let older = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=8";
        assert_eq!(found(older), (3, 8, "slurm"));
        assert_eq!(found("JOB_COMPLETION_INDEX=3 WORLD_SIZE=8"), (3, 8, "kubernetes"));
        let written = resolve(ShardFrom::Environment, Some(8), "JOB_COMPLETION_INDEX=3");
        assert_eq!(written.unwrap(), (3, 8, "kubernetes"));
    }

    #[test]
    fn the_innermost_launcher_wins() {
        let torchrun = "TORCHELASTIC_RUN_ID=none RANK=5 WORLD_SIZE=16";
        for outer in
            [STEP, "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "JOB_COMPLETION_INDEX=1"]
        {
            assert_eq!(found(&format!("{torchrun} {outer}")), (5, 16, "torchrun"));
        }
        let mpi = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=16";
        for outer in [STEP, "JOB_COMPLETION_INDEX=1"] {
            assert_eq!(found(&format!("{mpi} {outer}")), (5, 16, "openmpi"));
        }
        let pod = "RANK=5 WORLD_SIZE=16 JOB_COMPLETION_INDEX=1";
        assert_eq!(found(pod), (5, 16, "torchrun"));
    }

    #[test]
    fn slurm_counts_only_in_a_task_of_srun() {
        let batch_script = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8";
        assert_eq!(found(batch_script), WHOLE);
        let shell = "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8";
        assert_eq!(found(shell), WHOLE);
        let error = refused(&format!("{STEP} SLURM_PTY_PORT=41000"));
        assert_has(&error, "loader.shard", &["SLURM_PTY_PORT", "loader.shard = \"slurm\""]);
        let alone = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PTY_PORT=41000";
        assert_eq!(found(alone), (0, 1, "slurm"));
        let named = resolve(ShardFrom::Slurm, None, &format!("{STEP} SLURM_PTY_PORT=41000"));
        assert_eq!(named.unwrap(), (3, 8, "slurm"));
    }

    #[test]
    fn contradictory_variables_are_refused_by_name() {
        for (text, values) in [
            ("RANK=three WORLD_SIZE=8", &["RANK", "\"three\""][..]),
            ("RANK= WORLD_SIZE=8", &["RANK", "\"\""]),
            ("RANK=-1 WORLD_SIZE=8", &["RANK", "\"-1\""]),
            (
                "SLURM_STEP_ID=0 SLURM_PROCID=1",
                &["SLURM_PROCID", "1", "SLURM_NTASKS", "slurm", "SLURM_STEP_NUM_TASKS"],
            ),
        ] {
            let error = refused(text);
            assert_has(&error, "loader.shard", values);
            assert_has(&error, "loader.shard", WAYS_OUT);
        }
        // The last word of each case must occur at least twice in the message: the variable that is
        // not set, or the number that both variables have.
        for (text, values, twice) in [
            ("RANK=3", ["RANK", "3", "torchrun"], "WORLD_SIZE"),
            ("WORLD_SIZE=8", ["WORLD_SIZE", "8", "torchrun"], "RANK"),
            ("RANK=8 WORLD_SIZE=8", ["RANK", "WORLD_SIZE", "torchrun"], "8"),
            ("RANK=0 WORLD_SIZE=0", ["RANK", "WORLD_SIZE", "torchrun"], "0"),
            ("PMI_SIZE=2", ["PMI_SIZE", "2", "mpich"], "PMI_RANK"),
            ("JOB_COMPLETION_INDEX=3", ["JOB_COMPLETION_INDEX", "3", "kubernetes"], "WORLD_SIZE"),
            (
                "OMPI_COMM_WORLD_RANK=1",
                ["OMPI_COMM_WORLD_RANK", "1", "openmpi"],
                "OMPI_COMM_WORLD_SIZE",
            ),
        ] {
            let error = refused(text);
            assert_has(&error, "loader.shard", &values);
            assert!(error.problem.matches(twice).count() >= 2, "{twice}: {error}");
            assert_has(&error, "loader.shard", WAYS_OUT);
        }
    }

    #[test]
    fn variables_left_by_a_script_must_agree() {
        let same = format!("{STEP} RANK=3 WORLD_SIZE=8");
        assert_eq!(found(&same), (3, 8, "slurm"));
        assert_eq!(found(&format!("{STEP} WORLD_SIZE=8")), (3, 8, "slurm"));
        let error = refused(&format!("{STEP} RANK=0 WORLD_SIZE=1"));
        let slurm = ["SLURM_PROCID", "3", "SLURM_STEP_NUM_TASKS", "8", "slurm"];
        assert_has(&error, "loader.shard", &slurm);
        assert_has(&error, "loader.shard", &["RANK", "0", "WORLD_SIZE", "1", "torchrun"]);
        refused(&format!("{STEP} WORLD_SIZE=2"));
        refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2");
    }

    #[test]
    fn settings_override_the_environment() {
        let loader =
            LoaderSettings { rank: Some(1), world_size: Some(3), ..LoaderSettings::default() };
        let torchrun = environment("RANK=3 WORLD_SIZE=8");
        let shard = Shard::resolve(&loader, &torchrun).unwrap();
        assert_eq!((shard.rank, shard.world, shard.from), (1, 3, "settings"));
        for value in ["1", "3", "loader.rank", "loader.world_size"] {
            assert!(shard.to_string().contains(value), "{value}: {shard}");
        }
        let set = "RANK=3 WORLD_SIZE=8";
        assert_eq!(resolve(ShardFrom::None, None, set).unwrap(), WHOLE);
        let error = resolve(ShardFrom::Slurm, None, set).unwrap_err();
        assert_has(&error, "loader.shard", &["SLURM_PROCID", "SLURM_NTASKS", "slurm"]);
        let same = resolve(ShardFrom::Environment, Some(8), set);
        assert_eq!(same.unwrap(), (3, 8, "torchrun"));
        let error = resolve(ShardFrom::Environment, Some(4), set).unwrap_err();
        assert_has(&error, "loader.world_size", &["4", "3", "8", "torchrun"]);
        resolve(ShardFrom::None, Some(4), "").unwrap_err();
        let half = LoaderSettings { rank: Some(1), ..LoaderSettings::default() };
        let error = config(Shard::resolve(&half, &torchrun).unwrap_err());
        assert_has(&error, "loader.world_size", &["loader.rank", "1"]);
        let twice = LoaderSettings { shard: ShardFrom::None, ..loader };
        let error = config(Shard::resolve(&twice, &torchrun).unwrap_err());
        assert_has(&error, "loader.shard", &["loader.rank", "loader.world_size"]);
    }
}
