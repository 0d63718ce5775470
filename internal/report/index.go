package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"netemd/internal/kpi"
)

// index is what the page of several experiments sees.
type index struct {
	Headline, Sub string
	Rows          []indexRow
}

type indexRow struct {
	Experiment
	// Page is where its own is, from the index; empty where there is none.
	Page, Anchor, Conditions string
}

// WriteIndex writes the page of several experiments, whose folders are below dir.
func WriteIndex(dir string, all Experiments) error {
	return write(dir, IndexFile, func(w io.Writer) error { return indexOf(all).write(w) })
}

func (p index) write(w io.Writer) error { return pages().ExecuteTemplate(w, "index.html", p) }

func indexOf(all Experiments) index {
	count := map[kpi.Verdict]int{}
	var took time.Duration
	var p index
	for _, e := range all.Experiments {
		count[e.Verdict]++
		took += e.took()
		r := indexRow{Experiment: e, Anchor: strings.ReplaceAll(e.Name, "/", "-"), Conditions: verdictsText(e.KPIs)}
		if !e.Started.IsZero() {
			r.Page = e.Name + "/" + PageFile
		}
		p.Rows = append(p.Rows, r)
	}
	p.Headline = fmt.Sprintf("%d experiments: %d passed, %d failed, %d inconclusive", len(all.Experiments), count[kpi.Passed], count[kpi.Failed], count[kpi.Inconclusive])
	p.Sub = fmt.Sprintf("They took %s in all.", took.Round(time.Second))
	return p
}

// verdictsText says how many conditions came to what.
func verdictsText(all []KPI) string {
	count := map[kpi.Verdict]int{}
	for _, k := range all {
		count[k.Verdict]++
	}
	var parts []string
	for _, v := range []kpi.Verdict{kpi.Passed, kpi.Failed, kpi.Inconclusive} {
		if count[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[v], v))
		}
	}
	return strings.Join(parts, ", ")
}
