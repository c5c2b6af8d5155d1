//! The unit files in `dist`.

use std::fs;
use std::path::Path;
use std::thread;

/// Runs a test of each unit, all at the same time.
pub(crate) fn for_each_unit(test: impl Fn(&Unit) + Sync) {
    let (units, test) = (Unit::all(), &test);
    thread::scope(|scope| {
        for unit in &units {
            scope.spawn(move || test(unit));
        }
    });
}

/// A unit of a service.
#[derive(Debug)]
pub(crate) struct Unit {
    /// Its file's name without `.service`.
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Unit {
    /// Returns all units, by name.
    pub(crate) fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let services = files.filter(|path| path.extension().is_some_and(|it| it == "service"));
        let read = |path: &Path| Self {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            text: fs::read_to_string(path).unwrap(),
        };
        let mut units: Vec<_> = services.map(|path| read(&path)).collect();
        units.sort_by(|a, b| a.name.cmp(&b.name));
        units
    }

    pub(crate) fn named(name: &str) -> Self {
        Self::all().into_iter().find(|unit| unit.name == name).expect("a unit of this name")
    }

    /// Returns the unit with a drop-in's settings.
    pub(crate) fn with(&self, drop_in: &str) -> Self {
        let settings = drop_in.trim_start_matches("[Service]\n");
        let text = self.text.replace("\n[Install]\n", &format!("{settings}\n[Install]\n"));
        Self { name: self.name.clone(), text }
    }

    pub(crate) fn has(&self, line: &str) -> bool {
        self.text.lines().any(|it| it == line)
    }

    /// Returns the values of a key, in their order.
    pub(crate) fn values(&self, key: &str) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns the options of `setpriv` that give a program the unit's user and capabilities.
    pub(crate) fn privileges(&self) -> Vec<String> {
        let list = |key: &str| {
            let capabilities = self.values(key).flat_map(str::split_whitespace);
            let names = capabilities.map(|name| name.trim_start_matches("CAP_").to_lowercase());
            names.fold(String::from("-all"), |list, name| format!("{list},+{name}"))
        };
        let ambient = list("AmbientCapabilities");
        let mut options = vec![
            "--no-new-privs".to_owned(),
            format!("--bounding-set={}", list("CapabilityBoundingSet")),
            format!("--inh-caps={ambient}"),
            format!("--ambient-caps={ambient}"),
        ];
        if self.has("DynamicUser=yes") {
            // The user and the group `nobody`, in the place of those that systemd would make.
            options.extend(["--reuid=65534", "--regid=65534", "--clear-groups"].map(str::to_owned));
        }
        options
    }
}
