package netemtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"netemd/internal/container"
)

// A number that another process has by now is not taken for the one that gave the name.
func TestNamesOfTheDead(t *testing.T) {
	mine, err := newName()
	if err != nil {
		t.Fatal(err)
	}
	began, err := container.Started(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	gone := ended.Process.Pid
	for name, want := range map[string]bool{
		mine:                false,
		mine + ledgerSuffix: false,
		fmt.Sprintf("%d-%d-abcdef.labs", os.Getpid(), began-1): true,
		fmt.Sprintf("%d-%d-abcdef", os.Getpid(), began+1):      true,
		fmt.Sprintf("%d-%d-abcdef.new", gone, began):           true,
		fmt.Sprintf("%d-abcdef.labs", gone):                    true,
		fmt.Sprintf("%d-abcdef.labs", os.Getpid()):             false,
		fmt.Sprintf("%d-x-abcdef", gone):                       false,
		"0-abcdef":                                             false,
		"-1-abcdef":                                            false,
		"netemd":                                               false,
		"":                                                     false,
	} {
		if got := dead(name); got != want {
			t.Errorf("%s: dead %v, want %v", name, got, want)
		}
	}
	if !strings.HasPrefix(mine, fmt.Sprintf("%d-%d-", os.Getpid(), began)) {
		t.Error(mine)
	}
}
