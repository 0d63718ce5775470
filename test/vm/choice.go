//go:build linux

package vm

import (
	"strings"
	"time"
)

// Choice is what the short run takes of a package on one kernel. The zero value takes
// nothing.
type Choice struct {
	// Tests are the names of tests; nil means all that are not in Without.
	Tests []string
	// Without are patterns as of -test.skip, of tests or, after a slash, of their parts.
	Without []string
}

func (c Choice) nothing() bool { return len(c.Tests) == 0 && len(c.Without) == 0 }

// The short run's choices rest on this: the machine that boots the guests runs every
// package as well, on a kernel that has tcx as 6.12 has. So 6.12 takes what needs
// sch_netem, and 6.1 what is done another way there: the hooks by clsact and cls_bpf,
// programs before an older verifier. The long run takes everything on both.

// Suites are the packages that behave differently on a kernel with sch_netem, or
// that must be seen to work on an older one.
var Suites = []Suite{
	{Package: "qdisc", Limit: 2 * time.Minute, Short: map[string]Choice{
		// The older kernel has fewer options, the newer one the seed: both read back.
		"6.1": {Tests: netemOptions}, "6.12": {Tests: netemOptions},
	}},
	// The calls are the same on the machine's own kernel.
	{Package: "namespaces", Limit: 2 * time.Minute, Short: map[string]Choice{"6.12": {}}},
	// The older verifier; the newer one lies between it and the machine's own.
	{Package: "internal/match", Limit: 2 * time.Minute, Short: map[string]Choice{"6.12": {}}},
	{Package: "internal/engine/netem", Limit: 6 * time.Minute, Short: map[string]Choice{
		// What netem does to packets is seen on one kernel.
		"6.1": {Without: []string{"^TestTraffic"}},
		// The way by clsact is the only one on 6.1.
		"6.12": {Without: []string{"/^clsact$"}},
	}},
	{Package: "internal/engine/ebpf", Limit: 8 * time.Minute, Short: map[string]Choice{
		"6.1": {Tests: oldHooks}, "6.12": {Tests: besideNetem},
	}},
	{Package: "internal/verify", Run: "^TestNetem", Limit: 4 * time.Minute, Short: map[string]Choice{
		// Its packets take the way by clsact; how netem is judged is seen on the other kernel.
		"6.1": {Tests: []string{"TestNetemOnOthersDevices"}},
	}},
	// What is typed is the same everywhere.
	{
		Package: "internal/cli", Run: "^TestPlanCanBeTyped$", Limit: 2 * time.Minute,
		Short: map[string]Choice{"6.1": {}},
	},
	{Package: "internal/offload", Limit: 2 * time.Minute, Short: map[string]Choice{
		// Features by the older ethtool netlink, the pair's other end, and packets whole
		// and cut at a hook without tcx.
		"6.1":  {Tests: []string{"TestOffAndRestore", "TestPeers", "TestPacketsAsOnTheWire"}},
		"6.12": {},
	}},
	// Tracepoints change from kernel to kernel.
	{Package: "internal/evidence", Limit: 3 * time.Minute},
	{Package: "internal/feature/try", Limit: 2 * time.Minute},
	// A lab is made of what every kernel has, but for the netem on its wires, which a killed
	// agent leaves behind, too. The lab with PostgreSQL is test/e2e's.
	{
		Package: "internal/lab", Kernels: []string{Kernel612.Series}, Limit: 4 * time.Minute,
		Short: map[string]Choice{"6.12": {Tests: []string{"TestNetwork", "TestKilledInTurns", "TestInterruptedDown"}}},
	},
	// The agent's faults on the netem engine: each kind of target, a group of processes, and
	// schedules packet by packet. The older kernel tells a group's sockets apart by a layout of
	// its own, and has the way by clsact alone.
	{
		Package: "internal/agent", Limit: 3 * time.Minute, Run: "^(" + strings.Join(agentOnNetem, "|") + ")$",
		Short: map[string]Choice{
			"6.1":  {Tests: []string{"TestFaultOnAGroup"}},
			"6.12": {Tests: agentOnNetem},
		},
	},
	// Faults in tests on the netem engine, and what a killed test leaves of it.
	{
		Package: "netemtest", Kernels: []string{Kernel612.Series}, Limit: 5 * time.Minute,
		Short: map[string]Choice{"6.12": {Tests: []string{"TestFaultsOfOneTestCombine", "TestParallelLabs", "TestNextClearsWhatWatchersDidNot"}}},
	},
	{
		Package: "test/e2e", Limit: 10 * time.Minute, Programs: []string{"cmd/netemd", "cmd/netemctl"}, Failpoints: []string{"cmd/netemd"},
		Short: map[string]Choice{
			// Devices of others and a killed agent go the way by clsact here.
			"6.1": {Tests: []string{"TestDevices", "TestKilledInAStorm"}},
			// The same by tcx, and the lab with both engines; what would lock the user out is
			// told by routes and sessions alone. The steps of the netem engine are here alone.
			"6.12": {Tests: []string{"TestDevices", "TestKilledInAStorm", "TestLab", "TestCrash"}},
		},
	},
}

// netemOptions set options of netem and read them back.
var netemOptions = []string{
	"TestRootOfOthers", "TestDeviceGone", "TestRootOfDownDevice", "TestChangeIsWhole",
	"TestEveryOptionReadsBack", "TestSlotAfterDistribution", "TestChangeEndsOthers",
}

// agentOnNetem are the tests of the agent whose engine is netem where a run is for it.
var agentOnNetem = []string{"TestKindsOfTargets", "TestFaultOnAGroup", "TestScheduleIsMeasured", "TestFlappingIsMeasured"}

// oldHooks are the tests of the ebpf engine for a kernel without tcx.
var oldHooks = []string{
	// Attach at both hooks, move, take away; the filters and the clsact of others.
	"TestLoss", "TestDelay", "TestSetUnderTraffic", "TestQueueUnderTraffic", "TestTwoQueuesOnOneHook", "TestTwoEngines",
	"TestBesideOthers", "TestForeignClsactStays", "TestGone", "TestCloseDrains", "TestQueueLetsGo", "TestLoopback",
	// The end of the process leaves a cls_bpf filter behind, which has to be open and swept.
	"TestFailOpen", "TestDeadline", "TestTrafficIsWholeAgain", "TestUpgradeUnderAFault", "TestSweep",
	"TestRuleFailsOpen", "TestRuleLeavesNothing", "TestRuleGone",
	// Programs that the older verifier has to take, and its helpers' results.
	"TestMostFlows", "TestLongestCondition", "TestConditionAgrees", "TestFields", "TestTrackingAgrees", "TestSuperPackets",
	"TestCountOfManyProcessors", "TestManyConnections", "TestNewSYN", "TestRuleOpens", "TestChainOnManyPackets",
	"TestManyRules", "TestDropSYN", "TestDropThirdSegment", "TestHold",
	// What the older stack makes of packets that go back to it: checksums, segments, tags.
	"TestChecksums", "TestCutAsTheKernelDoes", "TestVLAN", "TestVLANTagsInTheData", "TestFragments",
}

// besideNetem are the tests of the ebpf engine for a kernel that has sch_netem and tcx.
var besideNetem = []string{
	// Both engines in one run, option by option.
	"TestDifferential",
	// The oldest kernel with tcx that is tried: attach, anchors, and programs of others.
	"TestLoss", "TestBesideOthers", "TestOthersComeFirst", "TestForeignProgram", "TestFailOpen", "TestDropThirdSegment",
	// The machine's own kernel may lack VLAN devices.
	"TestVLAN", "TestChecksums",
}
