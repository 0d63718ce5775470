// Package browser opens the pages of reports in a headless Chromium, as a person would: that no
// script fails and nothing is fetched, that every plot is drawn, nothing runs over the edge, and
// the numbers are those of the result.
package browser
