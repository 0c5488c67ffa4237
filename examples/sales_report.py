"""A month of sales as a page, a table and a small result; the same days always give the same figures."""

import argparse
import csv
import html
import json
import os
import random
from datetime import date, datetime, timedelta
from pathlib import Path
from statistics import mean

PRODUCTS = {"coffee": 3.20, "tea": 2.80, "cake & cream": 4.50}


def sales_of(day: date) -> dict[str, float]:
    chance = random.Random(day.toordinal())
    return {name: round(price * chance.randint(20, 80), 2) for name, price in PRODUCTS.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=7)
    days = parser.parse_args().days

    last = datetime.fromisoformat(os.environ["PUNCTUAL_SCHEDULED_FOR"]).date()
    report = {day: sales_of(day) for day in (last - timedelta(days=n) for n in range(days))}
    totals = {day: round(sum(sales.values()), 2) for day, sales in report.items()}

    out = Path("out")
    out.mkdir(exist_ok=True)
    with (out / "report.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["day", *PRODUCTS, "total"])
        table.writerows([day, *sales.values(), totals[day]] for day, sales in report.items())

    rows = "".join(f"<tr><td>{day}<td>{totals[day]:.2f}" for day in report)
    best = max(PRODUCTS, key=lambda name: sum(sales[name] for sales in report.values()))
    page = f"<!doctype html><title>Sales</title><h1>Best: {html.escape(best)}</h1><table>{rows}</table>\n"
    (out / "report.html").write_text(page)

    result = {
        "days": days,
        "total": round(sum(totals.values()), 2),
        "mean": round(mean(totals.values()), 2),
        "best": best,
    }
    (out / "result.json").write_text(json.dumps(result))
    print(f"{days} days, {result['total']:.2f} in all, best was {best}")


if __name__ == "__main__":
    main()
