//! The Xids.

use model::Action::{
    self, Contact, DrainReset, Inspect, None as Nothing, RebootNode, ResetGpu, RestartApp, RestartVm,
};

use super::{CATALOGUE, Class, DRIVER, Role, Source, Xid};

const fn row(codes: &'static [u32], name: &'static str, class: Class, action: Action) -> Xid {
    Xid {
        codes,
        name,
        class,
        role: Role::Cause,
        action,
        then: None,
        repeated: None,
        together: None,
        verdict_since: None,
        remap_pending: false,
        registers: false,
        note: "",
        source: CATALOGUE,
    }
}

impl Xid {
    const fn then(mut self, action: Action) -> Self {
        self.then = Some(action);
        self
    }

    const fn repeated(mut self, action: Action) -> Self {
        self.repeated = Some(action);
        self
    }

    const fn together(mut self, codes: &'static [u32], action: Action) -> Self {
        self.together = Some((codes, action));
        self
    }

    const fn verdict(mut self, since: u32) -> Self {
        self.verdict_since = Some(since);
        self
    }

    const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    const fn pending(mut self) -> Self {
        self.remap_pending = true;
        self
    }

    const fn registers(mut self) -> Self {
        self.registers = true;
        self
    }

    const fn note(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }

    const fn from(mut self, source: Source) -> Self {
        self.source = source;
        self
    }
}

/// What a number that no row has is taken for.
pub const UNKNOWN: Xid = row(&[], "not in the catalogue", Class::Unknown, Inspect);

/// Every row of the catalogue, and the numbers of the driver that are newer.
pub const XIDS: [Xid; 74] = [
    row(&[8], "channel idle timeout", Class::App, RestartApp).then(Contact),
    row(&[11, 32], "invalid or corrupted push buffer", Class::App, RestartApp),
    row(&[13], "graphics engine exception", Class::App, RestartApp)
        .repeated(Inspect)
        .note("the same GPC and TPC again and again is the hardware, anything else the application"),
    row(&[25], "invalid or illegal push buffer address", Class::App, RestartApp),
    row(&[31], "memory page fault", Class::App, RestartApp)
        .repeated(Inspect)
        .note("one GPU over several runs is the GPU, several GPUs in one run the application"),
    row(&[37], "driver firmware error", Class::Info, Nothing),
    row(&[38], "driver firmware error", Class::Info, Nothing).repeated(Contact),
    row(&[39, 40, 41, 70, 71, 72, 75, 76, 77, 85], "copy engine exception", Class::App, RestartApp)
        .then(Contact),
    row(&[43], "channel stopped", Class::App, Nothing)
        .role(Role::Symptom)
        .then(Contact)
        .note("the application failed, the GPU works on"),
    row(&[44], "context switch fault", Class::Info, Nothing).repeated(Contact),
    row(&[45], "channels removed", Class::Info, Nothing).role(Role::Symptom).note(
        "cleaning up after another error, and at the end of many a job; alone, fabric manager may be down",
    ),
    row(&[46], "GPU stopped processing", Class::Reset, ResetGpu).then(Contact),
    row(&[48], "double-bit memory error", Class::Reset, ResetGpu)
        .together(&[63, 64], DrainReset)
        .verdict(565)
        .note("171 and 172 say where"),
    row(&[54], "auxiliary power is not connected", Class::Hardware, Inspect).note("seating and cables"),
    row(&[60], "video processor exception", Class::App, RestartApp),
    row(&[61], "microcontroller breakpoint", Class::Support, Contact)
        .note("no longer used; older cards are reset"),
    row(&[62], "microcontroller halt", Class::Reset, ResetGpu).then(Contact).verdict(565),
    row(&[63], "row remap recorded", Class::Info, Nothing)
        .verdict(565)
        .pending()
        .note("the next reset puts it in place; the GPU works on until then"),
    row(&[64], "row remap failed", Class::Reset, ResetGpu)
        .then(Contact)
        .together(&[48], DrainReset)
        .verdict(565)
        .note("a card that does it again is for replacement"),
    row(&[66], "illegal access by the driver", Class::Info, Nothing),
    row(&[67], "illegal access by the driver", Class::Info, Nothing).repeated(Contact),
    row(&[68, 82, 83, 84, 86, 88, 89], "video engine exception", Class::App, RestartApp).then(Contact),
    row(&[69], "graphics engine class error", Class::App, RestartApp),
    row(&[74], "NVLink error", Class::Fabric, Inspect)
        .verdict(565)
        .registers()
        .note("the registers say which kind; cards before Blackwell"),
    row(&[78], "virtual GPU did not start", Class::Config, Inspect)
        .note("software of host and guest do not fit"),
    row(&[79], "GPU has fallen off the bus", Class::Node, RebootNode)
        .then(Contact)
        .verdict(565)
        .note("power, PCIe errors and what came in the minutes before"),
    row(&[80], "corrupted data sent to the GPU", Class::App, RestartApp).note("A100 and H100 only"),
    row(&[92], "high rate of single-bit memory errors", Class::Info, Nothing).then(Contact),
    row(&[93], "information memory is wearing", Class::Info, Nothing),
    row(&[94], "contained memory error", Class::App, RestartApp)
        .verdict(565)
        .note("only the process that met it ends"),
    row(&[95], "uncontained memory error", Class::Reset, ResetGpu)
        .verdict(565)
        .note("every process on the GPU ends"),
    row(&[96, 97, 98, 99, 100, 101, 102, 103, 104, 105], "video engine exception", Class::App, RestartApp)
        .then(Contact),
    row(&[106, 107], "management bus test", Class::Info, Nothing),
    row(&[109], "context switch timeout", Class::Reset, ResetGpu).verdict(570),
    row(&[110], "security fault", Class::Reset, ResetGpu)
        .then(Contact)
        .verdict(565)
        .note("a cold start may be needed"),
    row(&[119], "no answer from the system processor", Class::Reset, ResetGpu)
        .then(Contact)
        .note("nvidia-bug-report before the reset"),
    row(&[120], "system processor error", Class::Reset, ResetGpu)
        .then(Contact)
        .verdict(565)
        .note("nvidia-bug-report before the reset"),
    row(&[121], "corrected error between CPU and GPU", Class::Info, Nothing).note("a reset when it suits"),
    row(&[122], "read of the firmware memory failed", Class::Support, Contact),
    row(&[123], "write of the firmware memory failed", Class::Support, Contact),
    row(&[124], "information memory could not be read", Class::Support, Contact),
    row(&[125], "information memory is full", Class::Support, Contact),
    row(&[126, 127, 128, 129, 130, 131, 132, 133, 134, 135], "copy engine exception", Class::App, RestartApp)
        .then(Contact),
    row(&[136], "NVLink training failed", Class::Fabric, ResetGpu)
        .then(Inspect)
        .verdict(565)
        .note("signal integrity of the link"),
    row(&[137], "NVLink privilege error", Class::App, Nothing)
        .note("an access of the application to another GPU"),
    row(&[139], "optical flow engine exception", Class::App, RestartApp).then(Contact),
    row(&[140], "unrecovered memory error", Class::Reset, ResetGpu).then(Contact),
    row(&[141], "fast path error", Class::Info, Nothing).then(Contact),
    row(&[142], "video encoder exception", Class::Support, Contact),
    row(&[143], "GPU did not start", Class::Reset, ResetGpu).then(Contact).verdict(575),
    row(&[144], "NVLink 5 error, SAW", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[145], "NVLink 5 error, RLW", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[146], "NVLink 5 error, TLW", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[147], "NVLink 5 error, TREX", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[148], "NVLink 5 error, NVLPW", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[149], "NVLink 5 error, NETIR", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[150], "NVLink 5 error, MSE", Class::Fabric, Inspect).verdict(565).registers(),
    row(&[151], "keys could not be changed", Class::Vm, RestartVm)
        .then(Contact)
        .note("confidential computing"),
    row(&[152, 153], "deep learning accelerator error", Class::Info, Nothing),
    row(&[154], "recovery action changed", Class::Info, Nothing).role(Role::Verdict),
    row(&[155], "NVLink error set by software", Class::Fabric, ResetGpu)
        .verdict(565)
        .note("somebody may have asked for it"),
    row(&[156], "resource retired", Class::Reset, ResetGpu).verdict(565),
    row(&[157], "resource could not be retired", Class::Retire, Nothing)
        .then(Contact)
        .note("no spare is left"),
    row(&[158], "fatal timeout", Class::Reset, ResetGpu).then(Contact),
    row(&[159], "error at the coherent interface", Class::Info, Nothing)
        .then(ResetGpu)
        .note("a reset where unified memory or virtual GPUs are in use"),
    row(&[160, 161], "channel retired, or could not be", Class::Info, Nothing).verdict(575),
    row(&[162, 163, 164], "power smoothing changed its state", Class::Unknown, Inspect),
    row(&[165], "power smoothing is worn out", Class::Hardware, Inspect).then(Contact),
    row(&[166, 170], "confidential NVLink error", Class::Unknown, Inspect),
    row(&[167], "fatal PCIe timeout", Class::Node, Inspect).note("as 79; the log of PCIe errors says more"),
    row(&[168], "less memory than there should be", Class::Unknown, Inspect)
        .note("compare the total with its peers"),
    row(&[169], "security processor halt", Class::Unknown, Inspect),
    row(&[171, 172], "where an uncorrectable memory error was", Class::Reset, Inspect)
        .role(Role::Detail)
        .note("171 in DRAM, 172 in SRAM; belongs to a 48"),
    row(&[173, 174, 175, 176], "newer than the catalogue", Class::Unknown, Inspect).from(DRIVER).note(
        "173 link between chips, 174 process ended silently, 175 memory subsystem, 176 corrected PCIe fault",
    ),
];
