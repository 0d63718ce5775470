// Package report turns results into what people and programs read: the JSON
// envelope, plain sentences, and a page of HTML that needs nothing besides
// itself.
package report
