package browser

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// names are what Chromium is called.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// start starts a browser, which ends with the test. Without one the test is skipped, and fails
// where NETEMD_TEST_BROWSER=1 asks for it.
func start(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range names {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("NETEMD_TEST_BROWSER") == "1" {
			t.Fatal("no browser is here: want one of " + strings.Join(names, ", ") + " (Debian: apt-get install chromium)")
		}
		t.Skip("no browser is here (Debian: apt-get install chromium); NETEMD_TEST_BROWSER=1 makes this a failure")
	}
	// The pages are our own, and tests may run as root, for whom Chromium has no sandbox.
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	ctx, closed := chromedp.NewContext(limited, chromedp.WithAllocatorOptions(chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir())))
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("the browser did not end well: %v", err)
		}
		closed()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser did not start: %v", err)
	}
	return ctx
}

// view is how a page is looked at.
type view struct {
	width int64
	// scheme is light or dark; empty: printed.
	scheme string
}

func (v view) String() string {
	if v.scheme == "" {
		return "printed"
	}
	return fmt.Sprintf("%s at %d", v.scheme, v.width)
}

// views are those that every page must look well in.
var views = []view{{1440, "light"}, {1440, "dark"}, {390, "light"}, {390, "dark"}, {793, ""}}

// seen is a page in a view.
type seen struct {
	// Wide is by how many pixels the page is wider than the window.
	Wide int
	// Drawn and Empty count the paths of the plots that are shown, and those of them that have no
	// length; Plots are the plots that are shown, and Bare those of them without a path.
	Drawn, Empty, Plots, Bare int
	// Pale are texts whose contrast with the paper is below 4.5:1 (WCAG 2.1, 1.4.3).
	Pale []string
	Text string
	// Tables has the cells of each row of each table.
	Tables [][][]string
	// Dark says that the paper is darker than the ink.
	Dark bool
}

// look measures a page.
const look = `(() => {
	const shown = e => e.getClientRects().length > 0;
	const svgs = [...document.querySelectorAll("figure > svg")].filter(shown);
	const paths = svgs.flatMap(s => [...s.querySelectorAll("path")]);
	const rgb = c => (c.match(/[\d.]+/g) || [0, 0, 0]).map(Number);
	const light = c => {
		const [r, g, b] = rgb(c).map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const paperOf = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor, v = rgb(c);
			if (v.length < 4 || v[3] > 0) return c;
		}
		return "rgb(255, 255, 255)";
	};
	const pale = [];
	for (const e of document.querySelectorAll("body *")) {
		const own = [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim());
		if (!own || !shown(e) || e.closest("script, style") || parseFloat(getComputedStyle(e).opacity) < 1) continue;
		const s = getComputedStyle(e), svg = e.namespaceURI.endsWith("svg");
		const a = light(svg ? s.fill : s.color), b = light(paperOf(svg ? e.closest("svg").parentElement : e));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) pale.push(e.textContent.trim().slice(0, 40) + " " + contrast.toFixed(2));
	}
	const body = getComputedStyle(document.body);
	return {
		Wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
		Drawn: paths.length, Empty: paths.filter(p => !(p.getTotalLength() > 0)).length,
		Plots: svgs.length, Bare: svgs.filter(s => !s.querySelector("path")).length,
		Pale: pale, Text: document.body.innerText,
		Tables: [...document.querySelectorAll("table")].map(t => [...t.rows].map(r => [...r.cells].map(c => c.textContent.trim().replace(/\s+/g, " ")))),
		Dark: light(body.backgroundColor) < light(body.color),
	};
})()`

// open looks at a file in each view. What any page must be is checked here.
func open(browser context.Context, t *testing.T, file string) map[view]seen {
	t.Helper()
	tab, closed := chromedp.NewContext(browser)
	defer closed()
	address := (&url.URL{Scheme: "file", Path: file}).String()
	var mu sync.Mutex
	var wrong []string
	if err := chromedp.Listen(tab, func(e any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			wrong = append(wrong, "a script failed: "+e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
				wrong = append(wrong, fmt.Sprintf("the browser says: %s: %s", e.Entry.Level, e.Entry.Text))
			}
		case *runtime.EventConsoleAPICalled:
			wrong = append(wrong, fmt.Sprintf("a script writes to the console (%s)", e.Type))
		case *network.EventRequestWillBeSent:
			if e.Request.URL != address {
				wrong = append(wrong, "fetched: "+e.Request.URL)
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(tab, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(tab, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	all := map[view]seen{}
	for _, v := range views {
		media := emulation.SetEmulatedMediaParams{Media: "print"}
		if v.scheme != "" {
			media = emulation.SetEmulatedMediaParams{Media: "screen", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}}
		}
		if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, media); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if err := chromedp.Do(tab, chromedp.EmulateViewport(v.width, 900), chromedp.Navigate(address)); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		s, err := chromedp.Run(tab, chromedp.Evaluate[seen](look))
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if s.Wide > 0 {
			t.Errorf("%s: the page is %d pixels too wide", v, s.Wide)
		}
		if s.Empty > 0 || s.Bare > 0 {
			t.Errorf("%s: %d of %d paths are empty, %d of %d plots have none", v, s.Empty, s.Drawn, s.Bare, s.Plots)
		}
		if len(s.Pale) > 0 {
			t.Errorf("%s: too pale to be read: %s", v, strings.Join(s.Pale, "; "))
		}
		if s.Dark != (v.scheme == "dark") {
			t.Errorf("%s: dark %v", v, s.Dark)
		}
		for _, bad := range []string{"NaN", "Infinity", "undefined", "<nil>", "%!"} {
			if strings.Contains(s.Text, bad) {
				t.Errorf("%s: the page has %q", v, bad)
			}
		}
		all[v] = s
		if dir := os.Getenv("NETEMD_TEST_SCREENSHOTS"); dir != "" {
			picture(tab, t, dir, file, v)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, w := range wrong {
		t.Error(w)
	}
	return all
}

// picture keeps what is seen, for people.
func picture(tab context.Context, t *testing.T, dir, file string, v view) {
	t.Helper()
	png, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer("/", "-", " ", "-").Replace(strings.TrimPrefix(strings.TrimSuffix(file, ".html"), os.TempDir()+"/") + "-" + v.String() + ".png")
	if err := os.WriteFile(dir+"/"+name, png, 0o600); err != nil {
		t.Fatal(err)
	}
}
