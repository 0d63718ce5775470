package child

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	Register("echo", func(args []string) int {
		var order string
		if err := json.NewDecoder(os.Stdin).Decode(&order); err != nil {
			return 9
		}
		ns, _ := os.Readlink("/proc/self/ns/net")
		fmt.Println(ns, order, strings.Join(args, ","))
		return 7
	})
	// inherits starts a shell that says what it finds on descriptor 7.
	Register("inherits", func([]string) int {
		said, err := exec.Command("sh", "-c", "readlink /proc/self/fd/7 || echo nothing").Output()
		fmt.Printf("%s%v\n", said, err)
		return 0
	})
	Register("forever", func([]string) int {
		fmt.Println("ready")
		select {}
	})
	// parent starts a child that outlives its standard input and prints its number.
	Register("parent", func(args []string) int {
		p, err := Start("", Options{Survive: args[0] == "survive"}, "forever")
		if err != nil {
			return 9
		}
		_, _ = bufio.NewReader(p.Stdout).ReadString('\n')
		fmt.Println(p.PID)
		select {}
	})
	Run()
	os.Exit(m.Run())
}

func TestStartInNamespace(t *testing.T) {
	testenv.Root(t)
	name := fmt.Sprintf("nt-child-%d", os.Getpid())
	if err := namespaces.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Delete(name) })
	var inside string
	err := namespaces.Do(t.Context(), name, func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(name, Options{}, "echo", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	// The order ends with its own end: standard input stays open.
	if _, err := io.WriteString(p.Stdin, `"order"`+"\n"); err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(out), inside+" order a,b\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("wait: %v, want exit code 7", err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill after the end: %v", err)
	}
}

func TestUnknownChild(t *testing.T) {
	p, err := Start("", Options{Stderr: os.Stderr, Stdout: os.Stderr}, "nobody")
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("wait: %v, want exit code 2", err)
	}
}

func TestUnknownNamespace(t *testing.T) {
	if p, err := Start("nt-child-none", Options{}, "echo"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, %v, want fs.ErrNotExist", p, err)
	}
}

// TestParentKilled checks that a child notices a parent that had no time to say
// anything, and that one that shall survive does.
func TestParentKilled(t *testing.T) {
	for mode, survives := range map[string]bool{"die": false, "survive": true} {
		t.Run(mode, func(t *testing.T) {
			parent, err := Start("", Options{}, "parent", mode)
			if err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(parent.Stdout).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = parent.Wait()
			if survives {
				time.Sleep(200 * time.Millisecond)
				if !alive(pid) {
					t.Fatal("the child has ended with its parent")
				}
				orphan, err := os.FindProcess(pid)
				if err != nil {
					t.Fatal(err)
				}
				_ = orphan.Kill()
			}
			deadline := time.Now().Add(5 * time.Second)
			for alive(pid) {
				if time.Now().After(deadline) {
					t.Fatal("the child still runs")
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// alive is false for a zombie, too, which nobody may reap in a container.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// TestInherited starts this program with a descriptor that is open over an exec.
func TestInherited(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", append([]string{"-c", `exec "$@" 7</dev/null`, "sh", self}, Args("inherits")...)...)
	if got, err := cmd.Output(); err != nil || string(got) != "nothing\n<nil>\n" {
		t.Errorf("a process that a child starts has on descriptor 7 %q, %v, want nothing", got, err)
	}
}
