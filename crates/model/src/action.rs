//! What is to be done about a fault.

/// An action, mildest first: the order is that of severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// The application is started again.
    RestartApp,
    /// The GPU is reset, which ends every process on it; with `NVSwitch` often on all GPUs of the node.
    ResetGpu,
    /// The node's work is moved away first, then the GPU is reset.
    DrainReset,
    /// The virtual machine is started again.
    RestartVm,
    /// The node is booted.
    RebootNode,
    /// Somebody looks at the hardware or at what is not known.
    Inspect,
    /// The maker is asked.
    Contact,
}

impl Action {
    /// Every action; the order is that of severity.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::RestartApp,
        Self::ResetGpu,
        Self::DrainReset,
        Self::RestartVm,
        Self::RebootNode,
        Self::Inspect,
        Self::Contact,
    ];

    /// As labels and APIs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::RestartApp => "restart_app",
            Self::ResetGpu => "reset_gpu",
            Self::DrainReset => "drain_reset",
            Self::RestartVm => "restart_vm",
            Self::RebootNode => "reboot_node",
            Self::Inspect => "inspect",
            Self::Contact => "contact",
        }
    }

    /// Reads [`Action::name`].
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_the_order_is_that_of_severity() {
        for action in Action::ALL {
            assert_eq!(Action::named(action.name()), Some(action));
        }
        assert_eq!(Action::named("ignore"), None);
        assert!(Action::ALL.is_sorted());
        assert!(Action::None < Action::RestartApp && Action::Inspect < Action::Contact);
    }
}
