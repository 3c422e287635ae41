// Sorts a table by the column whose head is pressed; without scripts tables keep their order.
(function () {
  "use strict";
  function value(row, column) {
    var cell = row.cells[column], text = cell.textContent.trim();
    var number = parseFloat(cell.getAttribute("data-value") || text.replace(/^[^0-9+-]*/, "").replace(/,/g, ""));
    return cell.classList.contains("number") && !isNaN(number) ? number : text.toLowerCase();
  }
  function compared(a, b) {
    if (typeof a === typeof b) { return a < b ? -1 : a > b ? 1 : 0; }
    return typeof a === "number" ? -1 : 1;
  }
  function sort(table, head, column) {
    var body = table.tBodies[0], down = head.getAttribute("aria-sort") === "ascending";
    var rows = Array.prototype.map.call(body.rows, function (row) { return [value(row, column), row]; });
    rows.sort(function (a, b) { return down ? compared(b[0], a[0]) : compared(a[0], b[0]); });
    rows.forEach(function (pair) { body.appendChild(pair[1]); });
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (one) { one.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
  }
  Array.prototype.forEach.call(document.querySelectorAll("table"), function (table) {
    if (!table.tHead || table.tBodies[0].rows.length < 3) { return; }
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      head.appendChild(button);
      button.addEventListener("click", function () { sort(table, head, column); });
    });
  });
})();
