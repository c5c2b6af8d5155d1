//! Two hosts: network namespaces with a leaf and spine fabric between them.

use std::process::{Child, Command};

use weft_lab::{Lab, LabSpec, requirements};

use crate::pair::Stage;

pub(crate) struct Two(Lab);

impl Two {
    /// Brings the hosts up, or prints why it cannot.
    pub(crate) fn up() -> Option<Self> {
        if let Some(missing) = requirements().into_iter().find(|r| r.essential && !r.met) {
            println!("no two hosts: no {} ({})", missing.name, missing.fix);
            return None;
        }
        match Lab::up(&LabSpec::named(format!("s{}", std::process::id()))) {
            Ok(lab) => Some(Self(lab)),
            Err(error) => {
                println!("no two hosts: {error}");
                None
            }
        }
    }
}

impl Stage for Two {
    fn server(&self) -> String {
        self.0.fabric().address(0).to_string()
    }

    fn start(&self, second: bool, command: &mut Command) -> Child {
        self.0.spawn(if second { "h1" } else { "h0" }, command).expect("a program on a host")
    }
}
