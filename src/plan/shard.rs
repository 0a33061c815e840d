//! Shard of the set that a loader reads: from the settings, or from the variables that a launcher sets.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;

use serde::Serialize;

use crate::error::{Error, Result};

use super::{LoaderSettings, ShardFrom};

/// Shard of the set that a loader reads.
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

/// Launcher, and the variables that hold its rank and world.
struct Launcher {
    choice: ShardFrom,
    name: &'static str,
    rank: &'static str,
    world: &'static str,
    /// Variables of which one may hold the rank among the processes of this machine.
    local: &'static [&'static str],
}

/// Launchers in order of precedence: those that start the process itself before those that it may run under.
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
/// Set only by torchrun.
const TORCHRUN: &str = "TORCHELASTIC_RUN_ID";
/// World under old versions of Slurm without `SLURM_STEP_NUM_TASKS`, or if Slurm was told not to change the job's
/// variables.
const SLURM_TASKS: &str = "SLURM_NTASKS";
/// Set only in a task of `srun` and in the interactive step.
const SLURM_STEP: &str = "SLURM_STEP_ID";
/// Set by `srun --pty`.
const SLURM_TERMINAL: &str = "SLURM_PTY_PORT";
/// First step number of Slurm's steps that are not tasks. This one is the interactive step (slurm.h).
const SLURM_FIRST_SPECIAL: u64 = 0xffff_fffa;

/// Suffix of every message.
const WAY_OUT: &str = "or write loader.shard = \"none\" (this process reads the whole set) or a launcher's name, or \
     loader.rank and loader.world";

impl Environment {
    /// Variables of this process at the time of the call.
    pub fn of_process() -> Self {
        let names = LAUNCHERS.iter().flat_map(|it| [it.rank, it.world]);
        let others = [TORCHRUN, SLURM_TASKS, SLURM_STEP, SLURM_TERMINAL];
        let local = LAUNCHERS.iter().flat_map(|it| it.local.iter().copied());
        let set = names.chain(local).chain(others).filter_map(|name| {
            Some((name, std::env::var_os(name)?.to_string_lossy().into_owned()))
        });
        Self(set.collect())
    }

    /// Rank among the processes of this machine, with the variable that holds it. `None` if no launcher sets one.
    /// `LOCAL_RANK` comes first, because training programs choose their GPU by it.
    pub(super) fn local_rank(&self) -> Result<Option<(&'static str, u64)>> {
        // Slurm sets its own also in a batch script, which runs once.
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

    /// Number in a variable. `None` if it is not set.
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
    /// The whole set.
    pub const WHOLE: Self = Self { rank: 0, world: 1, from: "none" };

    /// Resolves settings and environment to a shard.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if they are contradictory, as described at [`ShardFrom`].
    pub fn resolve(loader: &LoaderSettings, environment: &Environment) -> Result<Self> {
        match (loader.rank, loader.world, loader.shard) {
            (Some(rank), Some(world), ShardFrom::Environment) => {
                Ok(Self { rank, world, from: "settings" })
            }
            (Some(_), Some(_), _) => Err(problem(
                "is written beside loader.rank and loader.world, which say it already; leave it out",
            )),
            (Some(rank), None, _) => {
                let text = format!("is missing beside loader.rank = {rank}; write both or neither");
                Err(Error::config("loader.world", text))
            }
            (None, world, choice) => {
                let shard = match LAUNCHERS.iter().find(|it| it.choice == choice) {
                    Some(launcher) => launcher.tells(environment, world)?,
                    None if choice == ShardFrom::None => Self::WHOLE,
                    None => find(environment, world)?.unwrap_or(Self::WHOLE),
                };
                match world {
                    Some(world) if world != shard.world => Err(Error::config(
                        "loader.world",
                        format!(
                            "is {world}, but this process is {shard}; correct one of them, leave loader.world \
                             out, or write loader.rank too"
                        ),
                    )),
                    _ => Ok(shard),
                }
            }
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, from } = self;
        let from = match *from {
            "settings" => "loader.rank and loader.world",
            "none" => "no launcher",
            launcher => launcher,
        };
        write!(f, "rank {rank} of {world} ({from})")
    }
}

/// Shard given by the launcher that started this process. `None` if there is none.
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
            "{}, but this is inherited by everything started from this shell ({SLURM_TERMINAL} is set); write \
             loader.shard = \"slurm\" where srun has started this very process, {WAY_OUT}",
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
                "{}, but {}; unset the wrong one, {WAY_OUT}",
                first.says(environment),
                other.says(environment)
            )));
        }
    }
    Ok(Some(shard))
}

impl Launcher {
    /// Whether its variables are set and apply to this process.
    fn is_there(&self, environment: &Environment) -> bool {
        match self.choice {
            // Any step number counts here. `tells` refuses values that are not numbers.
            ShardFrom::Slurm => environment
                .0
                .get(SLURM_STEP)
                .is_some_and(|it| it.parse().map_or(true, |step: u64| step < SLURM_FIRST_SPECIAL)),
            ShardFrom::Kubernetes => environment.has(self.rank),
            // Without a rank it may be the world of a pod whose index is its rank.
            ShardFrom::Torchrun if !environment.has(RANK) => {
                environment.has(WORLD) && !environment.has(JOB_INDEX)
            }
            _ => environment.has(self.rank) || environment.has(self.world),
        }
    }

    /// Shard given by its variables. `written` is `loader.world`.
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
                    " to the number of pods (the job's completions), write loader.world"
                }
                _ => "",
            };
            let says = self.says(environment);
            return Err(problem(format!("{says}; set {missing}{also}, {WAY_OUT}")));
        };
        if rank >= world {
            let says = self.says(environment);
            let text = format!("{says}: rank {rank} of {world} is invalid; correct it, {WAY_OUT}");
            return Err(problem(text));
        }
        Ok(Shard { rank, world, from: self.name })
    }

    /// Name of the variable that holds the world.
    fn world_variable(&self, environment: &Environment) -> &'static str {
        let older = self.choice == ShardFrom::Slurm && !environment.has(self.world);
        if older { SLURM_TASKS } else { self.world }
    }

    /// Its variables and their values, for messages.
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

    fn environment(text: &str) -> Environment {
        text.split_whitespace()
            .map(|it| {
                let (name, value) = it.split_once('=').unwrap();
                (&*name.to_string().leak(), value.to_string())
            })
            .collect()
    }

    fn resolve(shard: ShardFrom, world: Option<u64>, text: &str) -> Result<String, String> {
        let loader = LoaderSettings { shard, world, ..Default::default() };
        let found = Shard::resolve(&loader, &environment(text));
        found.map(|it| it.to_string()).map_err(|error| error.to_string())
    }

    fn found(text: &str) -> String {
        resolve(ShardFrom::Environment, None, text).unwrap()
    }

    fn refused(text: &str) -> String {
        resolve(ShardFrom::Environment, None, text).unwrap_err()
    }

    const STEP: &str = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=8 SLURM_NTASKS=8";

    #[test]
    fn each_launcher_is_detected_by_its_variables() {
        assert_eq!(found(""), "rank 0 of 1 (no launcher)");
        assert_eq!(found("RANK=3 WORLD_SIZE=8"), "rank 3 of 8 (torchrun)");
        let mpi = "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8";
        assert_eq!(found(mpi), "rank 3 of 8 (openmpi)");
        assert_eq!(found("PMI_RANK=3 PMI_SIZE=8"), "rank 3 of 8 (mpich)");
        assert_eq!(found(STEP), "rank 3 of 8 (slurm)");
        let older = "SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_NTASKS=8";
        assert_eq!(found(older), "rank 3 of 8 (slurm)");
        assert_eq!(found("JOB_COMPLETION_INDEX=3 WORLD_SIZE=8"), "rank 3 of 8 (kubernetes)");
        let written = resolve(ShardFrom::Environment, Some(8), "JOB_COMPLETION_INDEX=3");
        assert_eq!(written.unwrap(), "rank 3 of 8 (kubernetes)");
    }

    #[test]
    fn the_innermost_launcher_wins() {
        let torchrun = "TORCHELASTIC_RUN_ID=none RANK=5 WORLD_SIZE=16";
        for outer in
            [STEP, "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "JOB_COMPLETION_INDEX=1"]
        {
            assert_eq!(found(&format!("{torchrun} {outer}")), "rank 5 of 16 (torchrun)");
        }
        let mpi = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=16";
        for outer in [STEP, "JOB_COMPLETION_INDEX=1"] {
            assert_eq!(found(&format!("{mpi} {outer}")), "rank 5 of 16 (openmpi)");
        }
        let pod = "RANK=5 WORLD_SIZE=16 JOB_COMPLETION_INDEX=1";
        assert_eq!(found(pod), "rank 5 of 16 (torchrun)");
    }

    #[test]
    fn slurm_counts_only_in_a_task_of_srun() {
        let batch_script = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=8";
        assert_eq!(found(batch_script), "rank 0 of 1 (no launcher)");
        let shell = "SLURM_STEP_ID=4294967290 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=8";
        assert_eq!(found(shell), "rank 0 of 1 (no launcher)");
        let words = refused(&format!("{STEP} SLURM_PTY_PORT=41000"));
        assert!(words.contains("SLURM_PTY_PORT is set"), "{words}");
        let alone = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1 SLURM_PTY_PORT=41000";
        assert_eq!(found(alone), "rank 0 of 1 (slurm)");
        let named = resolve(ShardFrom::Slurm, None, &format!("{STEP} SLURM_PTY_PORT=41000"));
        assert_eq!(named.unwrap(), "rank 3 of 8 (slurm)");
    }

    #[test]
    fn contradictory_variables_are_refused_by_name() {
        for (text, words) in [
            ("RANK=3", "RANK is 3 and WORLD_SIZE is not set (torchrun); set WORLD_SIZE, or"),
            ("WORLD_SIZE=8", "RANK is not set and WORLD_SIZE is 8 (torchrun); set RANK, or"),
            ("RANK=three WORLD_SIZE=8", "RANK is \"three\", which is not a whole number"),
            ("RANK= WORLD_SIZE=8", "RANK is \"\", which is not a whole number"),
            ("RANK=-1 WORLD_SIZE=8", "RANK is \"-1\", which is not a whole number"),
            ("RANK=8 WORLD_SIZE=8", "rank 8 of 8 is invalid"),
            ("RANK=0 WORLD_SIZE=0", "rank 0 of 0 is invalid"),
            ("PMI_SIZE=2", "PMI_RANK is not set and PMI_SIZE is 2 (mpich); set PMI_RANK, or"),
            ("SLURM_STEP_ID=0 SLURM_PROCID=1", "SLURM_NTASKS is not set (slurm)"),
            ("JOB_COMPLETION_INDEX=3", "set WORLD_SIZE to the number of pods"),
            ("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set (openmpi)"),
        ] {
            let refused = refused(text);
            assert!(refused.starts_with("loader.shard: ") && refused.contains(words), "{refused}");
            assert!(refused.contains("loader.shard = \"none\""), "{refused}");
        }
    }

    #[test]
    fn variables_left_by_a_script_must_agree() {
        let same = format!("{STEP} RANK=3 WORLD_SIZE=8");
        assert_eq!(found(&same), "rank 3 of 8 (slurm)");
        assert_eq!(found(&format!("{STEP} WORLD_SIZE=8")), "rank 3 of 8 (slurm)");
        let words = refused(&format!("{STEP} RANK=0 WORLD_SIZE=1"));
        assert!(words.contains("SLURM_PROCID is 3 and SLURM_STEP_NUM_TASKS is 8 (slurm), but"));
        assert!(words.contains("RANK is 0 and WORLD_SIZE is 1 (torchrun)"), "{words}");
        refused(&format!("{STEP} WORLD_SIZE=2"));
        refused("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2");
    }

    #[test]
    fn settings_override_the_environment() {
        let loader = LoaderSettings { rank: Some(1), world: Some(3), ..LoaderSettings::default() };
        let torchrun = environment("RANK=3 WORLD_SIZE=8");
        let shard = Shard::resolve(&loader, &torchrun).unwrap();
        assert_eq!(shard.to_string(), "rank 1 of 3 (loader.rank and loader.world)");
        let set = "RANK=3 WORLD_SIZE=8";
        assert_eq!(resolve(ShardFrom::None, None, set).unwrap(), "rank 0 of 1 (no launcher)");
        let words = resolve(ShardFrom::Slurm, None, set).unwrap_err();
        assert!(words.contains("SLURM_PROCID is not set and SLURM_NTASKS is not set"), "{words}");
        assert_eq!(
            resolve(ShardFrom::Environment, Some(8), set).unwrap(),
            "rank 3 of 8 (torchrun)"
        );
        let words = resolve(ShardFrom::Environment, Some(4), set).unwrap_err();
        assert!(
            words.starts_with("loader.world: is 4, but this process is rank 3 of 8"),
            "{words}"
        );
        resolve(ShardFrom::None, Some(4), "").unwrap_err();
        let half = LoaderSettings { rank: Some(1), ..LoaderSettings::default() };
        let words = Shard::resolve(&half, &torchrun).unwrap_err().to_string();
        assert!(words.starts_with("loader.world: is missing beside loader.rank = 1"), "{words}");
        let twice = LoaderSettings { shard: ShardFrom::None, ..loader };
        let words = Shard::resolve(&twice, &torchrun).unwrap_err().to_string();
        assert!(words.starts_with("loader.shard: is written beside"), "{words}");
    }
}
