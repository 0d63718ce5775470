package netem

import "testing"

// A device of ours is told with the device that was impaired.
func TestSweptInWords(t *testing.T) {
	v0 := link{name: "v0", index: 7}
	for alias, want := range map[string]string{
		"netemd1 state=/run/netemd dev=7 hook=egress clsact=new": "device ntm1 in netns a, for a fault at v0",
		"netemd1 state=/run/netemd dev=70 hook=egress":           "device ntm1 in netns a",
		"": "device ntm1 in netns a",
	} {
		if got := inWords(link{name: "ntm1", index: 9, alias: alias}, "a", []link{v0}); got != want {
			t.Errorf("%s: %q, want %q", alias, got, want)
		}
	}
}
